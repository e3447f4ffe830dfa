"""A hook of MkDocs: the page of one example, and one of the API reference for every folder and file of the packages."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from circuits import step_by_step
from retrieval_interp import load

ROOT = Path(__file__).parents[1]
PACKAGES = ("circuits", "retrieval_interp")
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
    files.append(File.generated(config, "steps.html", content=step_by_step(*load("transformer_a"), seed=1).page()))
    for package in PACKAGES:
        for room in rooms(package):
            name = f"{package}.{room}"
            files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}\n"))
    return files
