"""Viewers over training and side by side: what people see and do with them in a browser."""

import copy

import pytest
import torch
from playwright.sync_api import expect

from retrieval_interp.experiments.viewers import over_training, side_by_side
from tests.browser import opened
from tests.refusals import assert_refused


@pytest.fixture(scope="module")
def examples(task):
    return task.examples(2, 0)


WRONG = {
    "pairs of training step and model": lambda model, task: over_training(model, task.examples(2, 0)),
    "models are no pairs": lambda model, task: over_training([model, model], task.examples(2, 0)),
    "with at least one": lambda model, task: side_by_side({"a": model}),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_model_at_some_steps_and_no_viewer_is_refused(model, task, said):
    assert_refused(said, WRONG[said], model, task)


def test_only_viewers_of_the_same_steps_stand_side_by_side(model, examples):
    one, three = (over_training(((step, model) for step in steps), examples) for steps in ((0, 10), (0, 20)))
    assert_refused(r"'b' shows steps \[0, 20\], 'a' \[0, 10\]", side_by_side, {"a": one, "b": three})
    assert_refused("'a' is several viewers already", side_by_side, {"a": side_by_side({"x": one, "y": one})})
    assert_refused("with at least one", side_by_side, {})
    assert_refused("no step", over_training, [], examples)
    assert_refused("one model at several steps", over_training, [(0, model), (10, model)], examples)


ZOOMED = """() => [...document.querySelectorAll('.attention-panel')].map((box) =>
    [...box.querySelectorAll('canvas')].at(-1).toDataURL())"""  # what is drawn large in each panel
NASTY = "</script><script>document.title='owned'</script><!--<script>"
# What the notebooks of VS Code allow in the outputs of cells; styles and so on of other sources are left out.
VS_CODE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:"
)


@pytest.mark.slow
def test_offline_in_a_notebook_enter_locks_a_head_the_slider_leaves_it_and_titles_are_text(model, examples, tmp_path):
    before = copy.deepcopy(model)  # it attends nowhere in particular
    for block in before.blocks:
        torch.nn.init.zeros_(block.attn.W_Q)
    panels = {title: over_training([(0, before), (10, model)], examples, n) for n, title in enumerate((NASTY, "b"))}
    shown, notebook = side_by_side(panels)._repr_html_(), tmp_path / "notebook.html"
    assert len(shown) < 600_000  # packed; circuitsvis alone is twice as large
    meta = f'<meta http-equiv="Content-Security-Policy" content="{VS_CODE}"><link rel=icon href="data:,">'
    notebook.write_text(
        f"<!doctype html><html lang=en><title>a</title>{meta}<style>div {{ width: 0 }}</style>{shown}"
    )  # a style that shrinks
    with opened(notebook) as (page, complaints):
        frame = page.frame_locator("iframe")
        large = frame.get_by_role("heading", name="Zoomed")
        expect(frame.get_by_text(NASTY, exact=True)).to_be_visible()
        assert frame.locator("canvas").last.bounding_box()["width"] > 300
        frame.get_by_role("heading", name="L1H0", exact=True).first.hover()
        expect(large).to_have_text(["L1H0 Zoomed", "L0H0 Zoomed"])
        page.mouse.move(0, 0)
        expect(large).to_have_text(["L0H0 Zoomed", "L0H0 Zoomed"])
        frame.get_by_role("button", name="lock L1H0").first.press("Enter")
        page.mouse.move(0, 0)
        drawn, inner = {}, page.frames[1]
        for key, step in (("ArrowLeft", 0), ("ArrowRight", 10), ("ArrowLeft", 0)):
            frame.get_by_role("slider", name="step of training").focus()
            page.keyboard.press(key)
            expect(frame.locator(f"[data-drawn='step {step}']")).to_have_count(2)
            expect(large).to_have_text(["L1H0 Zoomed", "L0H0 Zoomed"])
            assert inner.evaluate(ZOOMED) == drawn.setdefault(step, inner.evaluate(ZOOMED))
        assert all(first != last for first, last in zip(drawn[0], drawn[10], strict=True))
        assert inner.evaluate("frameElement.clientHeight >= document.body.scrollHeight")
        assert inner.title() == "Attention"
        assert complaints == []
