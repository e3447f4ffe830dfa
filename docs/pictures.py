"""Make the pictures of the README and the site: ``python -m docs.pictures``; ``make pictures``. It needs a Chromium.

report.png    the report of transformer A, on all examples: the headline, one example, the diagram
explorer.png  the explorer of transformer A in JupyterLab, after a click on *minimal?*

The pictures that are stored here were then reduced to 256 colours, a third of the size (``pngquant --nofs 256``).
"""

import tempfile
from pathlib import Path

from playwright.sync_api import expect

from circuits import validate
from retrieval_interp import load
from tests.browser import new_page
from tests.jupyter import jupyter_server, notebook

HERE = Path(__file__).parent
CELL = """from retrieval_interp import load
from circuits import explore

model, task, circuit = load("transformer_a")
explore(model, task, circuit)"""


def report(folder: Path) -> None:
    """Take a picture of a report's verdicts and diagram."""
    page_file = validate(*load("transformer_a"), seed=1).save(folder)
    with new_page(viewport={"width": 1120, "height": 1500}) as (page, _):
        page.goto(page_file.as_uri())
        diagram = page.locator(".circuit-diagram").first
        diagram.wait_for()
        box = diagram.bounding_box()
        assert box is not None
        page.screenshot(
            path=HERE / "report.png",
            full_page=True,
            clip={"x": 0, "y": 0, "width": 1120, "height": box["y"] + box["height"] + 10},
        )


def explorer(folder: Path) -> None:
    """Take a picture of the explorer in JupyterLab."""
    with jupyter_server(folder) as server, notebook(server, "explorer", CELL) as (page, _):
        page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
        page.get_by_role("button", name="minimal?").click()
        expect(page.locator("[role=status]")).to_contain_text("needed")
        for drawn in ("[id^=attention-viewer] canvas", "table.losses", ".heat table"):
            page.locator(drawn).first.wait_for()
        cell = page.locator(".jp-Cell").first.bounding_box()
        assert cell is not None
        page.screenshot(path=HERE / "explorer.png", clip={**cell, "height": 1100})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder) / "report")
        explorer(Path(folder))
