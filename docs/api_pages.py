"""A hook of MkDocs: one example, step by step, where a page asks for it; and the API reference, a page a room."""

from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from circuits import step_by_step
from circuits.figures.page import render
from retrieval_interp import load

ROOT = Path(__file__).parents[1]
PACKAGES = ("circuits", "retrieval_interp")
EXAMPLE = '<div class="example"></div>'  # where a page shows one
LEFT_OUT = ("cli", "__main__", "__init__")  # commands.md has the commands


def rooms(package: str) -> list[str]:
    """The folders and files of a package, by name."""
    folders = [path.parent.name for path in (ROOT / package).glob("*/__init__.py")]
    files = [path.stem for path in (ROOT / package).glob("*.py")]
    return sorted(room for room in (*folders, *files) if room not in LEFT_OUT)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation."""
    pages: list[Any] = [
        {package: [{room: f"api/{package}.{room}.md"} for room in rooms(package)]} for package in PACKAGES
    ]
    config.nav = [{"API reference": pages} if "API reference" in entry else entry for entry in config.nav or []]
    config.watch += [str(ROOT / package) for package in PACKAGES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the pages."""
    for package in PACKAGES:
        for room in rooms(package):
            name = f"{package}.{room}"
            files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}\n"))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Put the example into the pages that show one."""
    return html.replace(EXAMPLE, example()) if EXAMPLE in html else html


@cache
def example() -> str:
    """Return one example of transformer A, step by step."""
    return render("steps.jinja", stories=step_by_step(*load("transformer_a"), seed=1))
