"""The command that shows attention: models side by side, one through its training, and what it refuses."""

import shutil
from dataclasses import replace

import pytest

from retrieval_interp.models import presets
from retrieval_interp.training import training
from tests.browser import assert_inked, opened
from tests.command import exit_code, refusal
from tests.sweeps import MICRO


@pytest.mark.slow
def test_models_are_shown_side_by_side_and_an_unfinished_run_through_its_training(tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", replace(MICRO, recipe=replace(MICRO.recipe, checkpoint_every=20)))
    run, page = tmp_path / "one", tmp_path / "attention.html"
    training.start_run(run, "micro", seed=0)
    training.train_run(run, "cpu", compiled=False)
    shutil.copytree(run, tmp_path / "two")
    chosen = ("--layer", 1, "--head", 0, "--examples", 1, "--by", "position", "--out", tmp_path)
    assert exit_code("view", run, tmp_path / "two", *chosen) == 0
    assert all(text in page.read_text() for text in ('"title": "one"', '"title": "two"', '"heads": ["L1H0"]'))
    assert "split by its position" in page.read_text()
    (run / "model.safetensors").unlink()
    assert exit_code("view", run, "--training", "--examples", 1, "--out", tmp_path) == 0
    assert all(f'"step": {step}' in page.read_text() for step in (20, 40, 60))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transformer_a", "transformer_d"], "transformer_d has another task than transformer_a"),
        (["transformer_a", "transformer_a"], "transformer_a is given twice"),
        (["transformer_a", "--layer", "12"], "the layer is 12; expected a whole number from 0 to 11"),
        (["transformer_a", "--head", "0"], "head 0 is given without a layer"),
        (["transformer_a", "--training"], "holds no checkpoints"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_nothing_is_written(arguments, message, tmp_path, capsys):
    assert message in refusal(capsys, "view", *arguments, "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_view_writes_one_offline_file_with_a_map_for_each_head_and_a_viewer_for_each_example(tmp_path):
    file = tmp_path / "attention.html"
    assert exit_code("view", "transformer_a", "--examples", 2, "--out", tmp_path) == 0
    with opened(file) as (page, complaints):
        for example in range(2):
            assert_inked(page, f"#attention-viewer-{example}")
        assert page.locator("#role-attention-0 .heatmaplayer image").count() == 12
        assert complaints == []
    assert '"1:pair3.second"' in file.read_text()
