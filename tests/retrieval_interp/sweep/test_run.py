import json
from dataclasses import replace

import pytest
import torch

from retrieval_interp import read_runs, train_many
from retrieval_interp.locks import claimed
from retrieval_interp.models import presets
from retrieval_interp.models.checkpoints import load_tensors
from retrieval_interp.models.model_dir import LOCK, WEIGHTS
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.run import RESULT, one_by_one, place, sweep
from retrieval_interp.training.training import TrainingRun
from retrieval_interp.training.training_step import TrainingStep
from tests.command import refusal, run
from tests.refusals import assert_refused
from tests.sweeps import MICRO

pytestmark = pytest.mark.usefixtures("micro_presets")
RUNS = [Run("other", 0), Run("other", 1)]


def swept(folder, runs=RUNS):
    return sweep(runs, folder, "cpu", lambda share: None)


def stopping(at):
    """``TrainingRun.advance``, which is interrupted before a step."""
    advance = TrainingRun.advance

    def stopped(self):
        if self.step == at:
            raise KeyboardInterrupt
        return advance(self)

    return stopped


def test_a_run_that_was_interrupted_ends_with_the_weights_and_losses_of_one_that_was_not(tmp_path, monkeypatch):
    often = replace(MICRO, recipe=replace(MICRO.recipe, checkpoint_every=20))
    monkeypatch.setitem(presets.PRESETS, "often", often)
    whole = train_many(["often"], 1, tmp_path / "whole", device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "advance", stopping(59))
        with pytest.raises(KeyboardInterrupt):
            train_many(["often"], 1, tmp_path / "parts", device="cpu")
    parts = train_many(["often"], 1, tmp_path / "parts", device="cpu")
    assert parts.drop(columns="seconds").equals(whole.drop(columns="seconds"))
    one, other = (load_tensors(place(tmp_path / name, Run("often", 0)) / WEIGHTS)[0] for name in ("whole", "parts"))
    assert all(torch.equal(weights, other[name]) for name, weights in one.items())
    left = {path.name for path in place(tmp_path / "parts", Run("often", 0)).iterdir()}
    assert left == {"config.json", "log.jsonl", WEIGHTS, RESULT, LOCK}


def test_the_losses_are_the_mean_of_the_last_validations_on_the_same_fresh_examples(tmp_path, monkeypatch):
    seen = []

    def validate(self, examples):
        seen.append(examples.inputs.sum().item())
        return torch.tensor([float(len(seen)), 0.0])

    monkeypatch.setattr(TrainingStep, "validate", validate)
    monkeypatch.setattr(TrainingStep, "__call__", lambda self, examples, lr: torch.tensor([0.4, 0.6]))
    runs = train_many(["micro"], 1, tmp_path, device="cpu", progress=(shares := []).append)
    *fresh, by_training, last = seen  # of 60 steps all are among the last hundred; training itself validates at its end
    assert len(fresh) == 5
    assert {*fresh, last} == {fresh[0]} == {MICRO.task.examples(512, 0).inputs.sum().item()}
    assert by_training == fresh[0], "seed 0 of the run is the seed of these examples"
    assert runs["loss"].tolist() == [pytest.approx((1 + 2 + 3 + 4 + 5 + 7) / 6), 0.0]
    assert runs["fell"].fillna(-1).tolist() == [20, -1]
    assert shares == [0.0, 1.0]


def test_a_task_that_grows_has_not_fallen_before_it_is_whole(tmp_path, monkeypatch):
    alone = replace(MICRO.task, implicit_curriculum=False)
    growing = replace(MICRO, task=alone, recipe=replace(MICRO.recipe, growing=True))
    monkeypatch.setitem(presets.PRESETS, "growing", growing)
    monkeypatch.setattr(TrainingStep, "__call__", lambda self, examples, lr: torch.zeros(1))
    runs = train_many(["growing"], 1, tmp_path, device="cpu")
    assert runs["fell"].tolist() == [60]  # two hops from step 30 of 60 on: the first 20 steps that are whole


def test_a_run_that_breaks_is_named_with_its_reason_and_the_others_go_on(tmp_path, monkeypatch):
    step, runs = TrainingStep.__call__, [Run("micro", 0), *RUNS]
    with monkeypatch.context() as patched:
        broken = lambda self, examples, lr: step(self, examples, lr) * (torch.nan if self.task == MICRO.task else 1)  # noqa: E731
        patched.setattr(TrainingStep, "__call__", broken)
        (failed, reason), *others = swept(tmp_path, runs).items()
    assert (str(failed), others) == ("micro, seed 0", [])
    assert "the loss or a weight became NaN or infinite by step 20" in reason
    assert [(place(tmp_path, one) / RESULT).exists() for one in runs] == [False, True, True]
    assert swept(tmp_path, runs) == {}


def test_what_another_process_trains_is_waited_for_and_not_trained_twice(tmp_path):
    assert swept(tmp_path, RUNS[:1]) == {}
    done = (place(tmp_path, RUNS[0]) / RESULT).read_text()
    (place(tmp_path, RUNS[0]) / RESULT).unlink()
    with claimed(place(tmp_path, RUNS[0]) / LOCK) as ours:
        assert ours
        (place(tmp_path, RUNS[1]) / RESULT).parent.mkdir()
        trained = one_by_one(RUNS, tmp_path, "nonsense")
        assert next(trained) == (RUNS[1], "device 'nonsense' is not known; expected one of auto, cuda, mps, cpu")
        (place(tmp_path, RUNS[0]) / RESULT).write_text(done)
    assert [*trained] == [(RUNS[0], None)]


def test_a_folder_with_other_settings_or_a_damaged_result_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    assert swept(tmp_path, RUNS[:1]) == {}
    path = place(tmp_path, RUNS[0]) / RESULT
    whole = path.read_text()
    monkeypatch.setattr(TrainingRun, "advance", lambda self: pytest.fail("nothing is to be trained"))
    for damaged, message in (
        ("", "the file is empty"),
        (whole.replace("other,0", "other,1"), "belongs to another run"),
    ):
        path.write_text(damaged)
        assert_refused(f"other/seed-0000/{RESULT}: {message}", swept, tmp_path)
    path.write_text(whole)
    monkeypatch.setitem(presets.PRESETS, "other", replace(MICRO, recipe=replace(MICRO.recipe, steps=80)))
    assert_refused("seed-0000: was made with another task than other has now; choose another", swept, tmp_path)


@pytest.mark.parametrize(("names", "seeds"), [([], 1), (["tiny"], 0)])
def test_no_preset_and_no_seed_are_refused(tmp_path, names, seeds):
    assert_refused("expected at least one", train_many, names, seeds, tmp_path)


def test_the_command_trains_a_plan_goes_on_and_says_what_failed(tmp_path, capsys, monkeypatch):
    plan, out = tmp_path / "mine.yaml", tmp_path / "out"
    plan.write_text("seeds: 1\npresets: [micro, other]\n")
    arguments = ("study", "sweep", plan, "--out", out, "--device", "cpu")
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "advance", stopping(0))
        assert run(capsys, *arguments)[0] == 130
        patched.setattr(TrainingRun, "advance", lambda self: [][0])
        code, text, errors = run(capsys, *arguments)
    assert (code, errors.splitlines()[0]) == (1, "micro, seed 0 failed: IndexError: list index out of range")
    code, text, _ = run(capsys, *arguments, "--json")
    document = json.loads(text)
    assert (code, document["failures"], len(document["rows"])) == (0, [], 3 + 2)
    before = (out / "runs.csv").read_text()
    code, text, _ = run(capsys, *arguments)
    assert (code, (out / "runs.csv").read_text()) == (0, before)
    assert len(read_runs(out / "runs.csv")) == 2 + 1
    page = (out / "figure4.html").read_text()
    assert "<script src" not in page
    assert '"showSendToCloud": false' in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "nosuch: no such file"),
        (["curricula", "--device", "tpu"], "device 'tpu' is not known"),
        (["curricula", "--scale", "huge"], "'huge' is not one of"),
        (["curricula", "--scale", "paper"], "--scale needs the plan figure4"),
    ],
)
def test_what_cannot_be_swept_is_one_clear_line(tmp_path, capsys, arguments, message):
    assert message in refusal(capsys, "study", "sweep", *arguments, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()
