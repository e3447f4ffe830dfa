"""The explorer where people see it: in JupyterLab, clicked, and without a network."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from circuits import evaluate
from circuits.explorer.explorer import AT_ONCE, EXACTLY
from tests.browser import barriers
from tests.handmade import InductionTask, induction_circuit, induction_model
from tests.jupyter import jupyter_server, notebook
from tests.listening import listening

EXPLORE = f"""import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.handmade import InductionTask, induction_circuit, induction_model
from circuits.explorer import explore
explore(induction_model(), InductionTask(), induction_circuit())"""


@pytest.mark.slow
def test_a_path_that_is_clicked_changes_the_loss_and_the_viewer_follows(tmp_path: Path) -> None:
    model, task, circuit = induction_model(), InductionTask(), induction_circuit()
    path = circuit.paths[-1]
    examples = task.examples(EXACTLY, 0).take(slice(0, AT_ONCE))
    before, without = (
        f"The circuit's loss is {losses.mean().item():.4f}"
        for losses in evaluate(model, task, examples, [circuit, circuit.without(path)])
    )
    assert before != without
    with jupyter_server(tmp_path) as server, notebook(server, "explorer", EXPLORE) as (page, complaints):
        status, arrow = page.locator("[role=status]"), page.locator(f"[data-act='path {path}']")
        expect(status).to_contain_text(before)
        arrow.locator("line").first.click()
        expect(status).to_contain_text(without)
        expect(arrow).to_have_attribute("aria-pressed", "false")
        page.get_by_role("button", name="undo", exact=True).click()
        expect(status).to_contain_text(before)
        arrow.focus()
        page.keyboard.press("Enter")
        expect(status).to_contain_text(without)
        expect(arrow).to_be_focused()
        viewer = page.locator("[id^=attention-viewer]")
        viewer.scroll_into_view_if_needed()
        expect(viewer).to_contain_text(f"{path.head} Zoomed")  # the head of the clicked path
        page.locator(".noUi-handle").focus()
        page.keyboard.press("ArrowRight")
        for head in ("L0H0", "L1H0"):  # another example, and the viewer still follows the chosen head
            page.get_by_label("head", exact=True).select_option(head)
            expect(viewer).to_contain_text(f"{head} Zoomed")
        expect(page.locator(".heat table")).to_have_count(2)  # the head in the model and in the circuit
        assert complaints + barriers(page, ".jp-OutputArea-output") == []
        assert listening(server.pid) == {"127.0.0.1"}  # the kernels too
