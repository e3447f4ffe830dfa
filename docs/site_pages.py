"""A hook of MkDocs: pages beside docs/, all figures, the API reference, and two reports, which the first page shows."""

import sys
from itertools import chain
from pathlib import Path
from re import Match, escape, findall, sub
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from circuits import Report, Task
from circuits.checks.experiment import Experiment
from circuits.model.transformer import Transformer
from circuits.report.page import page as page_of
from retrieval_interp import load
from retrieval_interp import on_task as with_task  # MkDocs takes every on_... for an event
from retrieval_interp.models import smollm2

ROOT = Path(__file__).parents[1]
PACKAGES = ("circuits", "retrieval_interp")
FIRST = ROOT / "docs" / "index.md"
BESIDE = ("studies", "benchmarks", "data")  # folders beside docs/, whose pages are within the site
MODELS = ("data/README.md", "data/paper/README.md", "data/literal/README.md")
REPORTS = {
    "steps.png": "transformer_a",
    "smollm2.png": "smollm2/ioi",
}  # live in the place of pictures of the first page
LEFT_OUT = ("cli", "__main__", "__init__")  # commands.md has the commands


def rooms(package: str) -> list[str]:
    """The folders and files of a package, by name."""
    folders = [path.parent.name for path in (ROOT / package).glob("*/__init__.py")]
    files = [path.stem for path in (ROOT / package).glob("*.py")]
    return sorted(room for room in (*folders, *files) if room not in LEFT_OUT)


def beside() -> dict[str, list[str]]:
    """The pages beside docs/, by their place in the navigation; the first of the studies lists the others."""
    studies = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").glob("*/README.md"))
    return {"Studies": ["studies/README.md", *studies], "Models and benchmarks": [*MODELS, "benchmarks/README.md"]}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation."""
    pages: list[Any] = [
        {package: [{room: f"api/{package}.{room}.md"} for room in rooms(package)]} for package in PACKAGES
    ]
    made = {"API reference": pages, **beside()}
    config.nav = [{name: made.get(name, own) for name, own in entry.items()} for entry in config.nav or []]
    config.watch += [str(ROOT / folder) for folder in (*PACKAGES, *BESIDE)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the pages."""
    for package in PACKAGES:
        for room in rooms(package):
            name = f"{package}.{room}"
            files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}\n"))
    pictures = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").glob("*/*.png"))
    for name in chain(*beside().values(), pictures):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, "gallery.md", content=gallery()))
    return files


def gallery() -> str:
    """The page of all figures, each below the title of its study, with the caption that it has there."""
    said = captions((ROOT / "docs" / "findings.md").read_text(encoding="utf-8") + FIRST.read_text(encoding="utf-8"))
    shown = ["# Figures"]
    for name, report in REPORTS.items():
        live = f'A picture; its buttons work in <a href="reports/{report}/report.html">the report</a>.'
        shown.append(f"![{said[name]}]({name})\n\n{said[name]}. {live}")
    for page in beside()["Studies"]:
        text = (ROOT / page).read_text(encoding="utf-8")
        figures = [(Path(page).parent / name, caption) for name, caption in captions(text).items()]
        shown += ["#" + text.partition("\n")[0]] * bool(figures)
        shown += [f"[![{caption}]({name.as_posix()})]({page})\n\n{caption}" for name, caption in figures]
    return "\n\n".join(shown) + "\n"


def captions(text: str) -> dict[str, str]:
    """What a page says of its pictures, by their names."""
    return {name: " ".join(said.split()) for said, name in findall(r"!\[([^]]*)\]\(([^)]*)\)", text)}


def on_post_build(config: MkDocsConfig) -> None:
    """Write the reports that the first page shows; they need no Python, and no network.

    The diagram and the examples need the model: SmolLM2's are there if it was loaded before (make lm).
    """
    for name in REPORTS.values():
        report, folder = Report.read(ROOT / "data" / name), Path(config.site_dir) / "reports" / name
        report.save(folder)
        if given := model_of(name):
            how = {"n_examples": report.n_examples, "seed": report.seed, "threshold": report.threshold}
            whole = page_of(report, Experiment(*given, report.circuit, **how))
            (folder / "report.html").write_text(whole, encoding="utf-8")


def model_of(name: str) -> tuple[Transformer, Task] | None:
    """The model of a report and its task; None if it was never loaded."""
    if name.startswith(smollm2.NAME):
        if has_smollm2():
            return with_task(smollm2.NAME, name.rpartition("/")[2], "kl")
        print(f"reports/{name} has no diagram and no examples: SmolLM2 was never loaded (make lm)", file=sys.stderr)
        return None
    model, task, _ = load(name)
    return (model, task) if task else None


def has_smollm2() -> bool:
    """Whether SmolLM2 was loaded before."""
    return (smollm2.cache_folder() / smollm2.NAME).is_dir()


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links from docs/ to folders beside it, and back, lead to pages of the site, where docs/ is the root."""
    for folder in () if page.file.src_uri.startswith(BESIDE) else BESIDE:
        markdown = markdown.replace(f"](../{folder}/", f"]({folder}/")
    return markdown.replace("](../docs/", "](../").replace("](../../docs/", "](../../")


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put the reports in the place of their pictures on the first page, if they have examples."""

    def live(picture: Match[str]) -> str:
        return f'<iframe src="reports/{REPORTS[picture[2]]}/report.html" title="{picture[1]}"></iframe>'

    there = [picture for picture, name in REPORTS.items() if not name.startswith(smollm2.NAME) or has_smollm2()]
    picture = rf'<p><img alt="([^"]*)" src="({"|".join(map(escape, there))})"[^>]*></p>'
    return sub(picture, live, html) if page.file.src_uri == FIRST.name else html
