"""The explorer and the viewers where people see them: in JupyterLab and Notebook 7, clicked, and without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from circuits import evaluate, load_circuit
from circuits.explorer.exploration import AT_ONCE, EXACTLY
from retrieval_interp import load
from tests.handmade import induction_circuit
from tests.jupyter import FRONT_ENDS, Server, jupyter_server, notebook
from tests.listening import listening

pytestmark = pytest.mark.slow

EXPLORE = """from retrieval_interp import load
from circuits.explorer import explore
model, task, circuit = load("induction")
explore(model, task, circuit)"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with jupyter_server(tmp_path_factory.mktemp("notebooks")) as started:
        yield started


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_clicked_arrow_changes_the_loss_to_what_the_engine_computes_and_undo_restores_it(
    front_end: str, server: Server
) -> None:
    model, task, circuit = load("induction")
    path = next(path for path in circuit.paths if path.source == "query")
    examples = task.examples(EXACTLY, 0).take(slice(0, AT_ONCE))
    whole, without = (
        f"{losses.mean().item():.4f}" for losses in evaluate(model, task, examples, [circuit, circuit.without(path)])
    )
    assert whole != without
    with notebook(server, front_end, EXPLORE, front_end=front_end) as (page, complaints):
        status, arrow = page.locator("[role=status]"), page.locator(f"[data-act='path {path}']")
        expect(status).to_contain_text(f"The circuit's loss is {whole}")
        expect(arrow).to_have_attribute("aria-pressed", "true")
        arrow.locator("line").first.click()
        expect(status).to_contain_text(f"The circuit's loss is {without}")
        expect(arrow).to_have_attribute("aria-pressed", "false")
        page.get_by_role("button", name="undo", exact=True).click()
        expect(status).to_contain_text(f"The circuit's loss is {whole}")

        arrow.focus()
        page.keyboard.press("Enter")
        expect(status).to_contain_text(f"The circuit's loss is {without}")
        expect(arrow).to_be_focused()

        viewer = page.locator("[id^=attention-viewer]")
        expect(viewer).to_contain_text(f"{path.head} Zoomed")  # the head that was acted on
        viewer.get_by_text("L0H0", exact=True).first.hover()
        expect(viewer).to_contain_text("L0H0 Zoomed")
        page.mouse.move(0, 0)
        page.locator(".noUi-handle").focus()
        page.keyboard.press("ArrowRight")
        for head in ("L0H0", "L1H0"):  # another example, and the viewer still follows the chosen head
            page.get_by_label("head", exact=True).select_option(head)
            expect(viewer).to_contain_text(f"{head} Zoomed")
        assert complaints == []


EXPLORE_TOKENS = f"""import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.handmade import InductionTask, induction_circuit, induction_model
from circuits.explorer import explore
from circuits import attention_viewer
model, task = induction_model(), InductionTask()
explore(model, task, induction_circuit())"""
VIEW = "attention_viewer(model, task.examples(1, 0))"


def test_a_circuit_of_a_token_model_is_drawn_tried_saved_and_reported_in_the_dark(server: Server) -> None:
    with notebook(server, "tokens", EXPLORE_TOKENS, VIEW) as (page, complaints):
        page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
        status = page.locator("[role=status]")
        expect(status).to_contain_text("The circuit's loss is 0.0000")
        page.locator("[data-act='head L1H0']").click()  # from its path to intact
        expect(page.locator("[data-act='head L1H0']")).to_contain_text("L1H0 intact")
        page.get_by_label("from", exact=True).select_option("query")
        page.get_by_label("to", exact=True).select_option("pair1.first")
        page.get_by_role("button", name="draw", exact=True).click()
        arrow = page.locator("[data-act^=path][aria-label*='L1H0 query -> pair1.first']")
        expect(arrow).to_have_attribute("aria-pressed", "true")
        expect(status).not_to_contain_text("The circuit's loss is 0.0000")
        page.get_by_role("button", name="undo", exact=True).click()
        page.get_by_role("button", name="undo", exact=True).click()
        page.get_by_role("button", name="minimal?").click()
        expect(status).to_contain_text("L1H0 query -> pair1.second: needed")
        page.get_by_role("button", name="save", exact=True).click()
        expect(status).to_contain_text("circuit.yaml")
        assert load_circuit(server.folder / "circuit.yaml").paths == induction_circuit().paths
        page.get_by_role("button", name="report", exact=True).click()
        expect(status).to_contain_text("The report is at circuit_report/report.html")
        assert (server.folder / "circuit_report" / "report.html").exists()

        ink = "element => getComputedStyle(element).color"
        assert page.locator("[data-act='head L1H0'] text").evaluate(ink) == "rgb(255, 255, 255)"
        viewer = page.frame_locator("iframe")
        viewer.get_by_role("heading", name="L1H0", exact=True).hover()
        expect(viewer.get_by_role("heading", name="Zoomed")).to_have_text("L1H0 Zoomed")
        assert complaints == []
    assert listening(server.pid) == {"127.0.0.1"}  # the kernels too
