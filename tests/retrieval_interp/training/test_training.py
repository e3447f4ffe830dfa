import json
import multiprocessing
import os
import re
import signal
import sys
import time
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import torch

from circuits import BadInput
from retrieval_interp.__main__ import main
from retrieval_interp.models import presets
from retrieval_interp.models.build import build
from retrieval_interp.models.checkpoints import load_model, load_tensors
from retrieval_interp.models.model_dir import CONFIG, read_config
from retrieval_interp.models.presets import PRESETS, Architecture, Preset, Recipe, preset
from retrieval_interp.publishing.export import export
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.training import training, training_step
from retrieval_interp.training.training_step import TrainingStep

MICRO = Preset(
    RetrievalTask(n_steps=1, n_chains=2),
    Architecture(n_layers=2, n_heads=1, d_model=16, d_head=16),
    # 96 examples are six steps: the run crosses several epochs.
    Recipe(steps=60, batch=16, training_examples=96, warmup=5, checkpoint_every=25),
)


@pytest.fixture(autouse=True)
def micro_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)


def start(folder, **arguments):
    training.start_run(folder, "micro", **arguments)
    return training.TrainingRun(folder, torch.device("cpu"), compiled=False)


def records(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [7, 20, 33, 50])
def test_a_resumed_run_continues_bit_for_bit(tmp_path, stop):
    whole = start(tmp_path / "whole")
    for _ in range(60):
        whole.advance()
    first = start(tmp_path / "components")
    for _ in range(stop):
        first.advance()
    first.save()
    for _ in range(5):  # what happens after the last save is forgotten
        first.advance()
    second = training.TrainingRun(tmp_path / "components", torch.device("cpu"), compiled=False)
    assert second.step == (25 if stop == 20 else stop)  # step 25 saved by itself
    while second.step < 60:
        second.advance()
    for name, parameter in whole.model.state_dict().items():
        assert torch.equal(parameter, second.model.state_dict()[name]), name
    assert records(tmp_path / "whole") == records(tmp_path / "components")


def test_a_run_killed_between_a_checkpoint_and_its_state_has_the_checkpoint_in_the_end(tmp_path, monkeypatch):
    run = start(tmp_path / "run")
    while run.step < 24:
        run.advance()
    with monkeypatch.context() as patched:
        patched.setattr(run, "save", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.advance()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-0000025.safetensors"]
    assert training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False).step == 0


@pytest.mark.slow
def test_training_leaves_a_model_that_loads_and_learns(tmp_path):
    run = tmp_path / "run"
    training.start_run(run, "micro", steps=200)
    training.train_run(run, "cpu", compiled=False)
    model, task = load_model(run)
    assert task == MICRO.task
    log = records(run)
    assert [record["step"] for record in log] == list(range(20, 201, 20))
    assert log[-1]["loss"] < log[0]["loss"] - 0.1
    assert log[-1]["validation"]["components"].keys() == {"x1"}
    examples = task.examples(training.VALIDATION_EXAMPLES, seed=0)
    with torch.no_grad():
        loss = task.losses(model(examples.inputs), examples).mean().item()
    assert loss == pytest.approx(log[-1]["validation"]["loss"], rel=0.02)
    steps = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert steps == [f"step-{step:07d}.safetensors" for step in (25, 50, 75, 100, 125, 150, 175, 200)]


def test_the_log_has_six_significant_digits_of_every_loss():
    losses = torch.tensor([0.123456789, 12345.6789], dtype=torch.float64)
    assert training.logged(["x1", "x2"], losses) == {"loss": 6172.9, "components": {"x1": 0.123457, "x2": 12345.7}}


def test_a_finished_run_keeps_its_log_however_short_it_was(tmp_path):
    training.start_run(tmp_path, "micro", steps=5)
    training.train_run(tmp_path, "cpu", compiled=False)
    (record,) = records(tmp_path)
    training.train_run(tmp_path, "cpu", compiled=False)
    assert records(tmp_path) == [record]
    assert record["step"] == 5


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    run = tmp_path / "run"
    training.start_run(run, "micro")
    with training.alone_in(run), pytest.raises(BadInput, match=f"{run}: another process trains this run"):
        training.train_run(run, "cpu", compiled=False)
    new = tmp_path / "new"
    with training.alone_in(new), pytest.raises(BadInput, match=f"{new}: another process trains this run"):
        training.start_run(new, "micro")
    assert not (run / "log.jsonl").exists()
    training.train_run(run, "cpu", compiled=False)
    with pytest.raises(BadInput, match="no such model directory"):
        training.train_run(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_model_without_its_training_state_is_left_as_it_is(tmp_path):
    run = tmp_path / "run"
    training.start_run(run, "micro", steps=20)
    training.train_run(run, "cpu", compiled=False)
    (run / "state.safetensors").unlink()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match=f"{run}: holds a model without state.safetensors"):
        training.train_run(run, "cpu", compiled=False)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_log_of_a_run_whose_state_is_gone_is_kept(tmp_path):
    run = tmp_path / "run"
    training.start_run(run, "micro", steps=60)
    training.train_run(run, "cpu", compiled=False)
    (run / "state.safetensors").unlink()
    (run / "model.safetensors").unlink()
    before = (run / "log.jsonl").read_bytes()
    with pytest.raises(BadInput, match=r"log.jsonl: goes to step 60, but state.safetensors is missing"):
        training.train_run(run, "cpu", compiled=False)
    assert (run / "log.jsonl").read_bytes() == before


@pytest.mark.parametrize("cut_off", ['{"step": 7', '{"step": "x"}', '{"step": null}', "[]"])
def test_a_run_that_was_killed_before_its_first_state_begins_again(tmp_path, cut_off):
    run = tmp_path / "run"
    training.start_run(run, "micro", checkpoint_every=20)
    training.train_run(run, "cpu", compiled=False)
    whole = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text(whole.splitlines()[0] + "\n" + cut_off)  # the line of step 20
    (run / "state.safetensors").unlink()
    (run / "model.safetensors").unlink()
    training.train_run(run, "cpu", compiled=False)
    assert (run / "log.jsonl").read_text() == whole


def test_every_epoch_visits_every_example_once_in_another_order(tmp_path):
    run = start(tmp_path / "run")
    batches = training_step.Batches(run.task, run.recipe, run.seed, torch.device("cpu"))
    seen = [batches.draws(step).symbols[:, 0, 0, 0].tolist() for step in range(12)]
    epochs = [[number for batch in part for number in batch] for part in (seen[:6], seen[6:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(batches.training_set.symbols[:, 0, 0, 0].tolist())
    assert len({*epochs[0]}) == 96
    assert epochs[0] != epochs[1]


def test_a_loss_that_turns_nan_stops_the_run_and_leaves_the_last_checkpoint(tmp_path):
    run = start(tmp_path / "run")
    for _ in range(30):
        run.advance()
    with torch.no_grad():
        run.model.unembed.W_U.fill_(float("nan"))
    while run.step < 39:
        run.advance()
    with pytest.raises(training.TrainingDiverged, match="NaN or infinite by step 40; the state of step 25"):
        run.advance()
    tensors, metadata = load_tensors(tmp_path / "run" / "state.safetensors")
    assert metadata["step"] == "25"
    assert all(t.isfinite().all() for name, t in tensors.items() if not name.endswith("IGNORE"))


def test_a_run_that_diverges_at_a_checkpoint_step_names_the_state_that_is_really_there(tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", replace(MICRO, recipe=replace(MICRO.recipe, checkpoint_every=20)))
    run = start(tmp_path / "run")
    while run.step < 39:
        run.advance()
    # A gradient that is no number: the loss of this step is still fine, the weights after it are not.
    hook = run.model.unembed.W_U.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(training.TrainingDiverged, match="by step 40; the state of step 20 is intact"):
        run.advance()
    hook.remove()
    resumed = training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False)
    assert resumed.step == 20
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-0000020.safetensors"]


@pytest.mark.slow
def test_a_damaged_log_is_refused_and_left_as_it_is(tmp_path):
    run = start(tmp_path / "run")
    while run.step < 50:
        run.advance()
    log = tmp_path / "run" / "log.jsonl"
    log.write_text("garbage\n" + log.read_text())
    before = log.read_text()
    with pytest.raises(BadInput, match=r"log\.jsonl, line 1: no log record"):
        training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False)
    assert log.read_text() == before


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"steps": 10.5},
        {"batch": -16},
        {"batch": 97},
        {"lr": "x"},
        {"lr": float("nan")},
        {"decay": 5},
        {"warmup": -1},
        {"warmup": 61},
        {"warmup": 10**27},
        {"lr": 0.0},
        {"initializer_range": 0.0},
        {"max_grad_norm": 0.0},
        {"checkpoint_every": None},
        {"colour": "red"},
    ],
    ids=str,
)
def test_a_recipe_that_cannot_be_trained_is_refused_on_resuming(tmp_path, change):
    training.start_run(tmp_path / "run", "micro")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["made"]["recipe"].update(change)
    path.write_text(json.dumps(config))
    with pytest.raises(BadInput, match=next(iter(change))):
        training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False)


def test_a_trial_of_a_few_steps_keeps_the_default_warm_up():
    assert preset("tiny", steps=3).recipe.warmup == 100
    with pytest.raises(BadInput, match="warmup is 4; expected at most the number of steps, 3"):
        preset("tiny", steps=3, warmup=4)


def test_a_name_that_is_no_field_is_refused_whatever_it_is(tmp_path):
    for name in ("name", "folder", "self"):
        with pytest.raises(BadInput, match=f"no field '{name}'; expected one of steps"):
            training.start_run(tmp_path / "run", "micro", **{name: 1})
    with pytest.raises(BadInput, match="no field 'seed'; expected one of steps"):
        training.check_start(tmp_path / "run", "micro", None, seed=1)


def test_the_learning_rate_warms_up_stays_and_decays_to_zero():
    recipe = Recipe(steps=1000, batch=1, training_examples=1, lr=1.0, warmup=100, decay=0.4)
    rates = [training_step.learning_rate(recipe, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[99] == rates[600] == 1.0
    assert rates[800] == pytest.approx(0.5)
    assert rates[999] < 1e-4


def test_only_matrices_decay(tmp_path):
    run = start(tmp_path / "run")
    names = {parameter: name for name, parameter in run.model.named_parameters()}
    decayed, others = run.take_step.optimizer.param_groups
    assert decayed["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    assert all(".W_" in f".{names[p]}" for p in decayed["params"])
    assert "blocks.0.attn.b_Q" in {names[p] for p in others["params"]}
    assert "pos_embed.W_pos" not in {names[p] for p in decayed["params"]}


def test_a_compiler_that_fails_is_told_and_training_goes_on(tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    training.start_run(tmp_path / "run", "micro", steps=5)
    training.train_run(tmp_path / "run", "cpu", compiled=True)
    assert "torch.compile does not work here (no compiler here)" in capsys.readouterr().err


def test_starting_on_a_folder_that_holds_a_run_is_refused(tmp_path):
    start(tmp_path / "run")
    (tmp_path / "run" / training.LOCK).unlink()
    with pytest.raises(BadInput, match="already holds a run; continue it with --resume"):
        training.start_run(tmp_path / "run", "micro")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="device 'tpu' is not known"):
        training_step.choose_device("tpu")


def test_a_run_that_has_not_ended_is_refused_with_its_step_and_what_continues_it(tmp_path):
    training.start_run(tmp_path / "my run", "micro")
    continued = f"continue it with: retrieval-interp train --resume --out '{tmp_path / 'my run'}'"
    with pytest.raises(BadInput, match=re.escape(f"my run: the run is not finished; {continued}")):
        export(tmp_path / "my run", tmp_path / "to")
    run = training.TrainingRun(tmp_path / "my run", torch.device("cpu"), compiled=False)
    for _ in range(3):
        run.advance()
    run.save()
    with pytest.raises(BadInput, match=f"not finished, .* step 3; {re.escape(continued)}"):
        export(tmp_path / "my run", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_what_was_never_a_run_of_its_own_lacks_weights(tmp_path):
    training.start_run(tmp_path, "micro")
    (tmp_path / training.LOCK).unlink()  # as a sweep starts its runs
    with pytest.raises(BadInput, match="no such file"):
        export(tmp_path, tmp_path / "to")


def test_a_damaged_state_is_refused_and_left_as_it_is(tmp_path):
    run = start(tmp_path / "run")
    run.advance()
    run.save()
    path = tmp_path / "run" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    damaged = path.read_bytes()
    with pytest.raises(BadInput, match="not a whole safetensors file"):
        training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False)
    assert path.read_bytes() == damaged


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(tmp_path, monkeypatch, interruptible):
    command = ["retrieval-interp", "train", "micro", "--steps", "1000000", "--no-compile", "--out"]
    monkeypatch.setattr(sys, "argv", [*command, str(tmp_path / "run")])
    said, log = tmp_path / "said.txt", tmp_path / "run" / "log.jsonl"

    def trained_for_ever():
        with said.open("w") as errors, redirect_stderr(errors):
            main()

    process = multiprocessing.get_context("fork").Process(target=trained_for_ever)  # which has imported everything
    process.start()
    while process.is_alive() and not (log.exists() and log.read_text()):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130, said.read_text()
    assert f"retrieval-interp train --resume --out {tmp_path / 'run'}" in said.read_text()
    resumed = training.TrainingRun(tmp_path / "run", torch.device("cpu"), compiled=False)
    assert resumed.step >= 20  # where the log begins


def test_seed_and_recipe_may_be_chosen_and_the_command_says_so(tmp_path):
    changed = {"steps": 12, "initializer_range": 0.5, "max_grad_norm": None, "precision": "float32"}
    run = start(tmp_path / "run", seed=9, mlp=False, **changed)
    assert (run.seed, run.recipe) == (9, replace(MICRO.recipe, **changed))
    assert run.model.W_Q.std().item() == pytest.approx(0.5, rel=0.1)
    assert not run.take_step.autocast
    command = training.train_command("micro", read_config(tmp_path / "run"), tmp_path / "run" / CONFIG)
    settings = "--set mlp=false --set initializer_range=0.5 --set max_grad_norm=none --set precision=float32"
    assert command == f"retrieval-interp train micro --seed 9 --steps 12 {settings}"
    older = read_config(tmp_path / "run")
    del older["task"]["problem"]  # earlier versions knew one task
    assert training.train_command("micro", older, tmp_path / "run" / CONFIG) == command


@pytest.mark.parametrize("name", ["transformer_a", "transformer_d", "figure4_ic_6"])
def test_the_rate_of_recipe_gpt_rises_for_1000_steps_and_falls_to_zero_over_all_others(name):
    recipe = PRESETS[name].recipe
    assert recipe.name == "gpt"
    rates = [training_step.learning_rate(recipe, step) for step in range(recipe.steps)]
    assert rates[:1000] == pytest.approx([1e-3 * (step + 1) / 1000 for step in range(1000)])
    middle = (1000 + recipe.steps) // 2
    assert rates[middle] == pytest.approx(5e-4, rel=0.01)
    assert rates[1000:] == sorted(rates[1000:], reverse=True)
    assert rates[-1] < 1e-6


def test_gradients_are_clipped_where_the_recipe_says_so():
    model = build(MICRO.task, MICRO.config)
    take = TrainingStep(model, MICRO.task, replace(MICRO.recipe, max_grad_norm=None, precision="float32"))
    examples = take.task.examples(8, 0)
    large = replace(examples, targets=1e3 * examples.targets)
    take(large, 0.0)
    norms = {}
    for name, step in {"free": take, "clipped": TrainingStep(model, MICRO.task, MICRO.recipe)}.items():
        step(large, 0.0)
        norms[name] = torch.stack([p.grad.norm() for p in step.parameters]).norm().item()
    assert norms["free"] > 10
    assert norms["clipped"] == pytest.approx(1.0, rel=1e-3)


def test_a_growing_task_has_one_hop_more_after_every_equal_share_of_the_first_half():
    task = RetrievalTask(3, n_chains=2, implicit_curriculum=False)
    recipe = Recipe(steps=40, batch=4, training_examples=8, growing=True)
    batches = training_step.Batches(task, recipe, 0, torch.device("cpu"))
    assert [batches.task_at(step).n_steps for step in range(40)] == [1] * 10 + [2] * 10 + [3] * 20
    assert [batches[step].inputs.shape[1] for step in (0, 10, 20)] == [2 * 3, 2 * 5, 2 * 7]


def test_only_what_asks_for_the_last_symbol_alone_can_grow():
    shape, recipe = Architecture(1, 1, 8, 8), Recipe(steps=20, batch=4, training_examples=8, growing=True)
    with pytest.raises(BadInput, match="growing is true; expected a retrieval task without"):
        Preset(RetrievalTask(2), shape, recipe)


def test_a_growing_task_is_trained(tmp_path, monkeypatch):
    task = RetrievalTask(2, n_chains=2, implicit_curriculum=False)
    recipe = Recipe(steps=40, batch=8, training_examples=64, growing=True)
    monkeypatch.setitem(presets.PRESETS, "growing", Preset(task, Architecture(1, 1, 8, 8), recipe))
    training.start_run(tmp_path / "run", "growing")
    training.train_run(tmp_path / "run", "cpu", compiled=False)
    model, loaded = load_model(tmp_path / "run")
    assert loaded == task
    assert torch.isfinite(model(task.examples(4, 0).inputs)).all()
