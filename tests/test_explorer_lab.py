"""The explorer where people see it: in JupyterLab, clicked, and without a network."""

from pathlib import Path

from playwright.sync_api import expect

from circuits import evaluate
from circuits.explorer.exploration import AT_ONCE, EXACTLY
from retrieval_interp import load
from tests.jupyter import PATIENCE, notebook

EXPLORE = """from retrieval_interp import load
from circuits.explorer import explore
model, task, circuit = load("induction")
explore(model, task, circuit)"""


def test_a_clicked_arrow_changes_the_loss_to_what_the_engine_computes_and_undo_restores_it(
    tmp_path: Path,
) -> None:
    model, task, circuit = load("induction")
    path = next(path for path in circuit.paths if path.source == "query")
    examples = task.examples(EXACTLY, 0).take(slice(0, AT_ONCE))
    whole, without = (
        f"{losses.mean().item():.4f}" for losses in evaluate(model, task, examples, [circuit, circuit.without(path)])
    )
    assert whole != without
    with notebook(tmp_path, EXPLORE) as (page, complaints):
        status, arrow = page.locator("[role=status]"), page.locator(f"[data-act='path {circuit.paths.index(path)}']")
        expect(status).to_contain_text(f"The circuit's loss is {whole}", timeout=PATIENCE)
        expect(arrow).to_have_attribute("aria-pressed", "true")
        arrow.locator("line").first.click()
        expect(status).to_contain_text(f"The circuit's loss is {without}", timeout=PATIENCE)
        expect(arrow).to_have_attribute("aria-pressed", "false")
        page.get_by_role("button", name="undo").click()
        expect(status).to_contain_text(f"The circuit's loss is {whole}", timeout=PATIENCE)

        arrow.focus()
        page.keyboard.press("Enter")
        expect(status).to_contain_text(f"The circuit's loss is {without}", timeout=PATIENCE)
        expect(arrow).to_be_focused()

        viewer = page.locator("[id^=attention-viewer]")
        viewer.get_by_text("L1H0", exact=True).first.hover()
        expect(viewer).to_contain_text("L1H0 Zoomed")
        assert complaints == []
