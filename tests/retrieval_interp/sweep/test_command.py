import json
from dataclasses import replace
from pathlib import Path

import pytest

from retrieval_interp.sweep import training as training_module
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import RESULT, Store
from tests.command import run
from tests.sweeps import trained

pytestmark = pytest.mark.usefixtures("micro_presets")


@pytest.mark.slow
def test_the_command_trains_a_plan_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, store = tmp_path / "mine.yaml", tmp_path / "store"
    plan.write_text("seeds: 2\npresets: [micro, other]\n")
    code, out, _ = run(capsys, "study", "sweep", plan, "--out", store, "--device", "cpu", "--json")
    document = json.loads(out)
    assert (code, document["failures"], len(document["rows"])) == (0, [], 3 + 2)
    before = (store / "runs.csv").read_text()
    code, out, _ = run(capsys, "study", "sweep", plan, "--out", store, "--device", "cpu")
    assert code == 0
    assert "The page is at" in out
    assert (store / "runs.csv").read_text() == before


def test_the_command_tells_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(training_module, "train_run", broken)
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 1\npresets: [micro]\n")
    code, _, errors = run(capsys, "study", "sweep", plan, "--out", tmp_path / "store", "--device", "cpu")
    assert code == 1
    assert "micro, seed 0 failed: RuntimeError: no memory left" in errors


def test_a_damaged_run_is_told_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    store.add(trained(Run("micro", 1)))
    (store.path(Run("micro", 1)) / RESULT).write_text("{")
    monkeypatch.setattr(training_module, "train_run", lambda *_, **__: pytest.fail("nothing is to be trained"))
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 2\npresets: [micro]\n")
    code, out, errors = run(capsys, "study", "sweep", plan, "--out", store.folder, "--device", "cpu")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "seed-0001: a damaged run" in errors
    assert not store.has(Run("micro", 0))


def test_weights_are_not_wanted_of_runs_that_were_kept_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store")
    store.add(replace(trained(Run("micro", 0)), weights=None))
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 1\npresets: [micro]\n")
    code, _, errors = run(capsys, "study", "sweep", plan, "--out", store.folder, "--weights", "--device", "cpu")
    assert code == 2
    assert "seed-0000: the run has no weights; choose another folder" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "nosuch: no such file"),
        (["curricula", "--device", "tpu"], "device 'tpu' is not known"),
        (["curricula", "--scale", "huge"], "'huge' is not one of"),
        (["curricula", "--gpus", "1"], "--address and --gpus need --engine ray"),
        (["curricula", "--scale", "paper"], "--scale needs the plan figure4"),
        (["curricula", "--engine", "ray", "--device", "tpu"], "device 'tpu' is not known"),
        (
            ["curricula", "--engine", "ray", "--address", "127.0.0.1:9"],
            "127.0.0.1:9: no Ray cluster answers there",
        ),
    ],
)
def test_what_cannot_be_swept_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, errors = run(capsys, "study", "sweep", *arguments, "--out", tmp_path / "new")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert not (tmp_path / "new").exists()
