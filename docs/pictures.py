"""Make the pictures of the README and the site: ``python -m docs.pictures``; ``make pictures``. It needs a Chromium.

smollm2.png   one prompt of IOI in SmolLM2, step by step (it needs the model: make lm)
steps.png     one example of transformer A, step by step
report.png    the report of transformer A, on all examples: the headline, one example, the diagram
explorer.png  the explorer of transformer A in JupyterLab, after a click on *minimal?*
smollm2_explorer.png  that of IOI in SmolLM2, after a click on a path

``pictures.json`` has the hash of each picture and of what it shows: the transformer, its circuit, and the code and
templates of the page. A test compares them with what is there.
"""

import json
import tempfile
from hashlib import sha256
from pathlib import Path

from playwright.sync_api import expect

from circuits import load_circuit, step_by_step, validate
from retrieval_interp import load, on_task
from tests.browser import new_page
from tests.jupyter import IDLE, jupyter_server, notebook

HERE = Path(__file__).parent
LISTED = HERE / "pictures.json"
STEPS = (
    "templates/base.css",
    "templates/steps.jinja",
    "templates/steps.js",
    "report/step_by_step.py",
    "report/looks.py",
)
DIAGRAM = ("templates/diagram.svg.jinja", "figures/diagram.py")
DATA = HERE.parent / "data"
TEMPLATES = {
    "smollm2.png": (*STEPS, "utils/tokens.py"),
    "steps.png": STEPS,
    "report.png": (*STEPS, *DIAGRAM, "templates/report.html.jinja", "report/strip.py"),
}
TEMPLATES |= dict.fromkeys(
    ("explorer.png", "smollm2_explorer.png"),
    (
        *DIAGRAM,
        "templates/losses.html.jinja",
        "templates/heat.html.jinja",
        "explorer/explorer.py",
        "checks/minimality.py",
    ),
)
CELLS = {
    "explorer": """from retrieval_interp import load
from circuits import explore

model, task, circuit = load("transformer_a")
explore(model, task, circuit)""",
    "smollm2_explorer": """from circuits import explore, load_circuit
from retrieval_interp import data_folder, on_task

model, task = on_task("smollm2", "ioi", "kl")
explore(model, task, load_circuit(data_folder() / "smollm2/ioi/circuit.yaml"))""",
}


def hashes(name: str) -> dict[str, str]:
    """The hash of a picture, and of what it shows."""
    own = [DATA / "transformer_a" / file for file in ("model.safetensors", "circuit.yaml")]
    own = [DATA / "smollm2/ioi/circuit.yaml"] if name.startswith("smollm2") else own
    shown = [HERE.parent / "circuits" / one for one in TEMPLATES[name]]
    parts = [file.read_bytes() for file in (*own, *shown)]
    return {"picture": sha256((HERE / name).read_bytes()).hexdigest(), "shows": sha256(b"".join(parts)).hexdigest()}


def steps(folder: Path) -> None:
    """Take pictures of one example, step by step."""
    ioi = *on_task("smollm2", "ioi", "kl"), load_circuit(DATA / "smollm2/ioi/circuit.yaml")
    for name, told in {"smollm2": step_by_step(*ioi), "steps": step_by_step(*load("transformer_a"), seed=1)}.items():
        told.save(folder / f"{name}.html")
        with new_page(viewport={"width": 1160, "height": 900}) as (page, _):
            page.goto((folder / f"{name}.html").as_uri())
            page.add_style_tag(content="body { max-width: none }")  # or the first token is out of sight
            page.locator(".steps").screenshot(path=HERE / f"{name}.png")


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
    """Take pictures of the explorer in JupyterLab."""
    for name, cell in CELLS.items():
        (folder / name).mkdir()
        with jupyter_server(folder / name) as server, notebook(server, name, cell) as (page, _):
            page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
            drawn, height = ["table.losses", ".heat table"], 1270
            if name == "explorer":
                page.get_by_role("button", name="minimal?").click()
                expect(page.locator("[role=status]")).to_contain_text("needed")
                drawn, height = [*drawn, "[id^=attention-viewer] canvas"], 1100
            else:
                path = page.locator("[data-act='path L21H7 end -> IO']")
                path.locator("line").first.click()
                path.locator("line[stroke-dasharray]").wait_for()
                page.wait_for_function(IDLE)
            for one in drawn:
                page.locator(one).first.wait_for()
            shown = page.locator(".jp-Cell").first.bounding_box()
            assert shown is not None
            page.screenshot(path=HERE / f"{name}.png", clip={**shown, "height": height})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        steps(Path(folder))
        report(Path(folder) / "report")
        explorer(Path(folder))
    LISTED.write_text(json.dumps({name: hashes(name) for name in TEMPLATES}, indent=2) + "\n")
