"""Runs the notebooks and keeps them with their outputs: ``python notebooks/build.py [NAME ...]``; `make notebooks`.

The sources are the .py files (jupytext's percent format); the .ipynb beside each is made from it. Figures are kept as
pictures too, widgets and attention viewers as pictures only: so they read well without a kernel, and stay small.
It needs a Chromium.
"""

import base64
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook of a source, without outputs; its cells are numbered, so that it is the same each time."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
    return notebook


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run a notebook in a folder, and keep what can be seen without a kernel."""
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ each time
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if _kept(one)]


def _kept(output: nbformat.NotebookNode) -> bool:
    """Make an output readable without a kernel; whether anything is left of it."""
    data = output.get("data", {})
    if data.pop(WIDGET, None) and not data.keys() - {"text/plain"}:
        return False  # a progress bar
    if data.get("text/html", "").startswith("<iframe"):
        data["image/png"] = picture(data.pop("text/html"))
    empty = "text/html" in data and not re.sub(r"<[^>]*>|\s", "", data["text/html"])  # where a progress bar was
    return output.get("name") != "stderr" and not empty


def picture(frame: str) -> str:
    """A viewer as people see it, as base64 of a PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(offline=True, viewport={"width": 900, "height": 700}).new_page()
        page.set_content(frame)
        page.frame_locator("iframe").locator("canvas, .steps svg").first.wait_for()
        page.wait_for_timeout(1000)  # it finds its height
        shown = page.locator("iframe").screenshot()
        browser.close()
    return base64.b64encode(shown).decode()


if __name__ == "__main__":
    os.environ |= {"PLOTLY_RENDERER": "plotly_mimetype+svg", "JUPYTER_PLATFORM_DIRS": "1"}
    for source in sorted(HERE.glob("[0-9]*.py")):
        if sys.argv[1:] and source.stem not in sys.argv[1:]:
            continue
        print(source.stem, file=sys.stderr)
        notebook = read(source)
        with tempfile.TemporaryDirectory() as folder:
            run(notebook, Path(folder))
        nbformat.write(notebook, source.with_suffix(".ipynb"))
