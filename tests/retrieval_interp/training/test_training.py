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
from retrieval_interp import train
from retrieval_interp.__main__ import main
from retrieval_interp.models import presets
from retrieval_interp.models.build import build
from retrieval_interp.models.checkpoints import load_model, load_tensors
from retrieval_interp.models.model_dir import CONFIG, LOCK, read_config
from retrieval_interp.models.presets import Architecture, Preset, Recipe, preset
from retrieval_interp.publishing.export import export
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.training import training, training_step
from retrieval_interp.training.training_step import TrainingStep
from tests.refusals import assert_refused

MICRO = Preset(
    RetrievalTask(n_steps=1, n_chains=2),
    Architecture(n_layers=2, n_heads=1, d_model=16, d_head=16),
    # 96 examples are six steps: the run crosses several epochs.
    Recipe(steps=60, batch=16, training_examples=96, warmup=5, checkpoint_every=25),
)


@pytest.fixture(autouse=True)
def micro_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)


def opened(folder):
    return training.TrainingRun(folder, torch.device("cpu"), compiled=False)


def start(folder, **arguments):
    training.start_run(folder, "micro", **arguments)
    return opened(folder)


def advance(run, to):
    while run.step < to:
        run.advance()
    return run


def whole(folder, **changes):
    """The folder of a run that was trained to its end."""
    training.start_run(folder, "micro", **changes)
    training.train_run(folder, "cpu", compiled=False)
    return folder


def records(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != LOCK}


@pytest.mark.slow
def test_a_resumed_run_continues_bit_for_bit(tmp_path):
    undisturbed = advance(start(tmp_path / "undisturbed"), 60)
    run = advance(start(tmp_path / "stopped"), 20)
    for stop, resumed in ((20, 25), (33, 33)):  # step 25 saves by itself
        run.save()
        advance(run, stop + 5)  # what happens after the last save is forgotten
        run = advance(opened(tmp_path / "stopped"), resumed)
        assert run.step == resumed
        advance(run, 33)
    advance(run, 60)
    for name, parameter in undisturbed.model.state_dict().items():
        assert torch.equal(parameter, run.model.state_dict()[name]), name
    assert records(tmp_path / "undisturbed") == records(tmp_path / "stopped")


def test_a_run_killed_between_a_checkpoint_and_its_state_has_the_checkpoint_in_the_end(tmp_path, monkeypatch):
    run = advance(start(tmp_path), 24)
    with monkeypatch.context() as patched:
        patched.setattr(run, "save", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.advance()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000025.safetensors"]
    assert opened(tmp_path).step == 0


@pytest.mark.slow
def test_training_leaves_a_model_that_loads_and_learns(tmp_path):
    run = whole(tmp_path / "run", steps=200)
    model, task = load_model(run)
    assert task == MICRO.task
    log = records(run)
    assert [record["step"] for record in log] == list(range(20, 201, 20))
    assert log[-1]["loss"] < log[0]["loss"] - 0.1
    assert log[-1]["validation"]["components"].keys() == {"x1"}
    assert all(record["loss"] == float(f"{record['loss']:.6g}") for record in log)  # no digits that say nothing
    examples = task.examples(training.VALIDATION_EXAMPLES, seed=0)
    with torch.no_grad():
        loss = task.losses(model(examples.inputs), examples).mean().item()
    assert loss == pytest.approx(log[-1]["validation"]["loss"], rel=0.02)
    steps = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert steps == [f"step-{step:07d}.safetensors" for step in range(25, 201, 25)]


@pytest.mark.slow
def test_a_run_that_is_there_is_loaded_and_another_one_is_refused(tmp_path, monkeypatch):
    changes = {"n_layers": 1, "steps": 5}
    model, task, circuit = train("micro", tmp_path, device="cpu", compiled=False, **changes)
    assert (model.cfg.n_layers, task, circuit) == (1, MICRO.task, None)
    (record,) = records(tmp_path)  # however short the run was
    assert record["step"] == 5
    monkeypatch.setattr(training, "train_run", lambda *_: pytest.fail("nothing is to be trained"))
    assert (train("micro", tmp_path, device="cpu", **changes).model.W_E == model.W_E).all()
    for other in ({"steps": 5}, {**changes, "seed": 5}, {**changes, "lr": 0.1}):
        assert_refused("choose another folder", train, "micro", tmp_path, device="cpu", **other)


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    run, new = tmp_path / "run", tmp_path / "new"
    training.start_run(run, "micro")
    with training.alone_in(run), pytest.raises(BadInput, match=f"{run}: another process trains this run"):
        training.train_run(run, "cpu", compiled=False)
    with training.alone_in(new), pytest.raises(BadInput, match=f"{new}: another process trains this run"):
        training.start_run(new, "micro")
    assert_refused("no such model directory", training.train_run, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_run_without_its_state_is_refused_and_left_as_it_is(tmp_path):
    run = whole(tmp_path / "run")
    (run / "state.safetensors").unlink()
    for message in ("holds a model without state.safetensors", "goes to step 60, but state.safetensors is missing"):
        before = contents(run)
        assert_refused(message, training.train_run, run, "cpu", compiled=False)
        assert contents(run) == before
        (run / "model.safetensors").unlink(missing_ok=True)


@pytest.mark.parametrize("cut_off", ['{"step": 7', '{"step": "x"}', '{"step": null}', "[]"])
def test_a_run_that_was_killed_before_its_first_state_begins_again(tmp_path, cut_off):
    training.start_run(tmp_path, "micro")
    (tmp_path / "log.jsonl").write_text('{"step": 20}\n' + cut_off)
    assert opened(tmp_path).step == 0
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_every_epoch_visits_every_example_once_in_another_order():
    batches = training_step.Batches(MICRO.task, MICRO.recipe, 0, torch.device("cpu"))
    seen = [batches.draws(step).symbols[:, 0, 0, 0].tolist() for step in range(12)]
    epochs = [[number for batch in part for number in batch] for part in (seen[:6], seen[6:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(batches.training_set.symbols[:, 0, 0, 0].tolist())
    assert len({*epochs[0]}) == 96
    assert epochs[0] != epochs[1]


def test_a_loss_that_turns_nan_stops_the_run_and_leaves_the_last_checkpoint(tmp_path):
    run = advance(start(tmp_path), 30)
    with torch.no_grad():
        run.model.unembed.W_U.fill_(float("nan"))
    with pytest.raises(training.TrainingDiverged, match="NaN or infinite by step 40; the state of step 25"):
        advance(run, 40)
    tensors, metadata = load_tensors(tmp_path / "state.safetensors")
    assert metadata["step"] == "25"
    assert all(t.isfinite().all() for t in tensors.values())


def test_a_run_that_diverges_at_a_checkpoint_step_names_the_state_that_is_really_there(tmp_path):
    run = advance(start(tmp_path, checkpoint_every=20), 39)
    # A gradient that is no number: the loss of this step is still fine, the weights after it are not.
    run.model.unembed.W_U.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(training.TrainingDiverged, match="by step 40; the state of step 20 is intact"):
        run.advance()
    assert opened(tmp_path).step == 20
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-0000020.safetensors"]


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("log.jsonl", lambda path: path.write_text("garbage\n" + path.read_text()), "line 1: no log record"),
        ("state.safetensors", lambda own: os.truncate(own, own.stat().st_size - 100), "not a whole safetensors file"),
    ],
)
def test_a_damaged_log_or_state_is_refused_and_left_as_it_is(tmp_path, file, damage, message):
    advance(start(tmp_path), 25)
    damage(tmp_path / file)
    before = contents(tmp_path)
    assert_refused(message, opened, tmp_path)
    assert contents(tmp_path) == before


BAD_FIELDS = [
    *({"steps": 0}, {"steps": 10.5}, {"batch": -16}, {"batch": 97}, {"lr": "x"}, {"lr": float("nan")}, {"lr": 0.0}),
    *({"decay": 5}, {"warmup": -1}, {"warmup": 61}, {"initializer_range": 0.0}, {"max_grad_norm": 0.0}),
    *({"checkpoint_every": None}, {"betas": [0.9]}, {"precision": "half"}, {"growing": 1}, {"colour": "red"}),
]


@pytest.mark.parametrize("change", BAD_FIELDS, ids=str)
def test_a_recipe_that_cannot_be_trained_is_refused_in_one_line_on_resuming(tmp_path, change):
    training.start_run(tmp_path, "micro")
    config = read_config(tmp_path)
    config["made"]["recipe"].update(change)
    (tmp_path / CONFIG).write_text(json.dumps(config))
    assert_refused(f"holds no training recipe .*{next(iter(change))}", opened, tmp_path)


def test_the_rate_rises_over_the_warm_up_stays_and_falls_to_zero_over_the_decay():
    recipe = Recipe(steps=1000, batch=1, training_examples=1, lr=1.0, warmup=100, decay=0.4)
    rates = [training_step.learning_rate(recipe, step) for step in range(1000)]
    assert rates[:100] == pytest.approx([(step + 1) / 100 for step in range(100)])
    assert {*rates[99:601]} == {1.0}
    assert rates[800] == pytest.approx(0.5)
    assert rates[999] < 1e-4


@pytest.mark.parametrize("name", ["paper_abc", "paper_d", "figure4_ic_6"])
def test_the_rate_of_the_papers_presets_rises_for_1000_steps_and_falls_over_all_others(name):
    recipe = preset(name).recipe
    assert (recipe.lr, recipe.warmup, recipe.steps * recipe.decay) == (1e-3, 1000, pytest.approx(recipe.steps - 1000))


def test_only_matrices_decay():
    step = TrainingStep(build(MICRO.task, MICRO.config), MICRO.task, MICRO.recipe)
    names = {parameter: name for name, parameter in step.model.named_parameters()}
    decayed, others = step.optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert all(".W_" in f".{names[p]}" for p in decayed["params"])
    assert "blocks.0.attn.b_Q" in {names[p] for p in others["params"]}
    assert "pos_embed.W_pos" not in {names[p] for p in decayed["params"]}


def test_a_compiler_that_fails_is_told_and_training_goes_on(tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    training.start_run(tmp_path, "micro", steps=5)
    training.train_run(tmp_path, "cpu", compiled=True)
    assert "torch.compile does not work here (no compiler here)" in capsys.readouterr().err


def test_starting_on_a_folder_that_holds_a_run_or_on_no_device_is_refused(tmp_path):
    assert_refused("device 'tpu' is not known", training.start_run, tmp_path / "new", "micro", device="tpu")
    assert not (tmp_path / "new" / CONFIG).exists()
    training.start_run(tmp_path, "micro")
    before = contents(tmp_path)
    assert_refused("already holds a run; continue it with --resume", training.start_run, tmp_path, "micro")
    assert contents(tmp_path) == before


def test_a_run_that_has_not_ended_is_refused_with_its_step_and_what_continues_it(tmp_path):
    run = start(tmp_path / "my run")
    continued = f"continue it with: retrieval-interp train --resume --out '{tmp_path / 'my run'}'"
    with pytest.raises(BadInput, match=re.escape(f"my run: the run is not finished; {continued}")):
        export(tmp_path / "my run", tmp_path / "to")
    advance(run, 3).save()
    assert_refused(f"not finished, .* step 3; {re.escape(continued)}", export, tmp_path / "my run", tmp_path / "to")
    (tmp_path / "my run" / LOCK).unlink()
    (tmp_path / "my run" / "state.safetensors").unlink()  # as in the store of a sweep
    assert_refused("no such file", export, tmp_path / "my run", tmp_path / "to")
    assert not (tmp_path / "to").exists()


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
    assert opened(tmp_path / "run").step >= 20  # where the log begins


def test_seed_and_recipe_may_be_chosen_and_the_command_says_so(tmp_path):
    changed = {"steps": 12, "initializer_range": 0.5, "max_grad_norm": None, "precision": "float32"}
    run = start(tmp_path, seed=9, mlp=False, **changed)
    assert (run.seed, run.recipe) == (9, replace(MICRO.recipe, **changed))
    assert run.model.W_Q.std().item() == pytest.approx(0.5, rel=0.1)
    assert not run.take_step.autocast
    config = read_config(tmp_path)
    settings = "--set mlp=false --set initializer_range=0.5 --set max_grad_norm=none --set precision=float32"
    command = f"retrieval-interp train micro --seed 9 --steps 12 {settings}"
    assert training.train_command(config, tmp_path / CONFIG) == command
    del config["task"]["problem"]  # earlier versions knew one task
    assert training.train_command(config, tmp_path / CONFIG) == command
    config["made"]["preset"] = "transformer_b"  # and presets by the names of the trained models
    assert training.train_command(config, tmp_path / CONFIG).startswith("retrieval-interp train paper_abc --seed 9 ")


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
    step = TrainingStep(build(task, Architecture(1, 1, 8, 8).config(task)), task, recipe)
    losses = [losses for _, losses, _ in training_step.train_steps(step, seed=0)]
    assert len(losses) == 40
    assert torch.cat(losses).isfinite().all()
    with pytest.raises(BadInput, match="growing is true; expected a retrieval task without"):
        Preset(RetrievalTask(2), Architecture(1, 1, 8, 8), recipe)
