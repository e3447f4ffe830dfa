import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.func import vmap

from circuits import BadInput
from retrieval_interp import RetrievalTask, presets, training_step
from retrieval_interp.cli import main
from retrieval_interp.model import build
from retrieval_interp.presets import Architecture, Preset, Recipe
from retrieval_interp.sweep import many_seeds
from retrieval_interp.sweep import store as store_module
from retrieval_interp.sweep import training as training_module
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.local import local
from retrieval_interp.sweep.many_seeds import Forward, ManySeeds, taking_turns
from retrieval_interp.sweep.plan import Plan, Run, load_plan
from retrieval_interp.sweep.run import TRIES, Told, sweep
from retrieval_interp.sweep.store import FAILURES, RESULT, STORE, Result, Store, Trained
from retrieval_interp.sweep.training import train_seeds
from retrieval_interp.training_step import Batches, TrainingStep, learning_rate

MICRO = Preset(
    RetrievalTask(2, n_chains=2),
    Architecture(2, 2, d_model=16, d_head=8),
    Recipe(steps=60, batch=16, training_examples=256, lr=2e-3, warmup=10),
)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def micro(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two presets that are trained in a second, without a compiler."""
    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)
    monkeypatch.setitem(presets.PRESETS, "other", replace(MICRO, task=RetrievalTask(1, n_chains=2)))
    monkeypatch.setattr(ManySeeds, "compile", lambda self: None)


def trained(run: Run, loss: float = 0.1) -> Trained:
    """What a run that was never made could have come to."""
    parts = presets.preset(run.preset).task.parts
    result = Result(run.preset, run.seed, dict.fromkeys(parts, loss), dict.fromkeys(parts, 20), 1.0, "cpu")
    return Trained(result, '{"step": 20}\n', {"W": torch.ones(2)})


def instant(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
    """An engine that needs no time."""
    for job in jobs:
        yield job, [trained(run) for run in job.runs]


# Measured: single precision differs by at most 2e-7 after one step and 6e-6 after 60; bf16 by up to 2e-3.
@pytest.mark.parametrize("forward", [taking_turns, vmap])  # as on a CPU, and as on a GPU
def test_seeds_trained_together_learn_what_they_learn_alone(
    forward: Callable[[Forward], Forward], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_seeds, "taking_turns", forward)
    for module in (training_step, many_seeds):
        monkeypatch.setattr(module, "has_fast_bfloat16", lambda device: False)
    seeds = (3, 0, 7)
    many = ManySeeds(MICRO, seeds, CPU)
    together = torch.stack([many.step(step) for step in range(MICRO.recipe.steps)])
    for place, seed in enumerate(seeds):
        model = build(MICRO.task, MICRO.architecture.config(MICRO.task), seed)
        take, batches = TrainingStep(model, MICRO.task, MICRO.recipe), Batches(MICRO.task, MICRO.recipe, seed, CPU)
        steps = range(MICRO.recipe.steps)
        alone = torch.stack([take(batches[step], learning_rate(MICRO.recipe, step)) for step in steps])
        torch.testing.assert_close(together[:, place], alone, atol=1e-4, rtol=0)
        examples = MICRO.task.examples(32, 0)
        model.load_state_dict(many.state(place))
        own = MICRO.task.losses(model(examples.inputs), examples).mean(dim=0)
        torch.testing.assert_close(many.losses(examples)[place], own, atol=1e-5, rtol=0)


def test_a_model_that_diverges_spoils_none_of_the_others() -> None:
    many, alone = ManySeeds(MICRO, (0, 1), CPU), ManySeeds(MICRO, (1,), CPU)
    with torch.no_grad():
        many.weights["unembed.b_U"][0] = torch.inf
    for step in range(3):
        first, second = many.step(step)
        assert not first.isfinite().any()
        torch.testing.assert_close(second, alone.step(step)[0], atol=1e-2, rtol=0)


def test_a_job_leaves_a_log_and_a_result_for_every_seed() -> None:
    shares: list[float] = []
    outcomes = train_seeds(Job("micro", (4, 2), MICRO), shares.append, "cpu", True)
    assert shares[-1] == 1.0
    for outcome, seed in zip(outcomes, (4, 2), strict=True):
        assert isinstance(outcome, Trained)
        assert outcome.result.run == Run("micro", seed)
        records = [json.loads(line) for line in outcome.log.splitlines()]
        assert [record["step"] for record in records] == [20, 40, 60]
        assert outcome.weights is not None
        model = build(MICRO.task, MICRO.architecture.config(MICRO.task), 0)
        model.load_state_dict(dict(outcome.weights))
        examples = MICRO.task.examples(512, 0)
        with torch.no_grad():
            losses = MICRO.task.losses(model(examples.inputs), examples).mean(dim=0)
        # The mean over the last steps is not that of the last weights, but near.
        assert outcome.result.loss == pytest.approx(losses.mean().item(), abs=0.1)


def test_a_run_that_diverges_is_a_failure_and_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ManySeeds.step

    def spoiled(self: ManySeeds, number: int) -> torch.Tensor:
        parts = step(self, number)
        parts[1] = torch.nan if number == 25 else parts[1]
        return parts

    monkeypatch.setattr(ManySeeds, "step", spoiled)
    first, second = train_seeds(Job("micro", (0, 1), MICRO), lambda share: None, "cpu", False)
    assert isinstance(first, Trained)
    assert second == Failure(Run("micro", 1), "the loss became NaN or infinite by step 40")


def test_a_plan_is_a_list_of_presets_with_seeds(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("seeds: 2\npresets: [micro, other]\n")
    assert load_plan(str(path), "laptop").runs == (Run("micro", 0), Run("micro", 1), Run("other", 0), Run("other", 1))
    assert len(load_plan("figure4", "paper").runs) == 128
    assert len(load_plan("figure4", "laptop").runs) == 36


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 0\npresets: [micro]", "seeds is '0'; expected a whole number from 1"),
        ("seeds: '00000000199999999999'\npresets: [micro]", "expected a whole number from 1"),
        ("seeds: 2\npresets: [equations]", "equations is no preset of the retrieval problem"),
        ("seeds: -1\npresets: [micro]", "seeds is '-1'; expected a whole number"),
        ("seeds: 2", "expected the keys seeds and presets"),
        ("seeds: 2\npresets: micro", "expected under presets a list"),
        ("seeds: 2\npresets: []", "expected under presets a list"),
        ("seeds: 2\npresets: [micro, micro]", "micro stands there twice"),
        ("seeds: 2\npresets: [nosuch]", "unknown preset 'nosuch'"),
        ("seeds: [", "not YAML"),
    ],
)
def test_a_plan_that_is_none_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        load_plan(str(path), "laptop")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_plan_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(BadInput, match=r"nosuch: no such file, nor a sweep .*census, curricula, figure4_laptop"):
        load_plan("nosuch", "laptop")


PLAN = Plan("mine", ("micro", "other"), 3)


def test_every_run_is_made_once_and_a_second_sweep_makes_what_is_missing(tmp_path: Path) -> None:
    made: list[Run] = []

    def noted(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
        for job, outcomes in instant(jobs, told):
            made.extend(job.runs)
            yield job, outcomes

    store, shares = Store(tmp_path / "store"), list[float]()
    assert sweep(Plan("mine", ("micro",), 2).runs, store, noted, shares.append) == []
    assert sweep(PLAN.runs, store, noted, shares.append) == []
    assert sorted(map(str, made)) == sorted(map(str, PLAN.runs))
    assert shares[-1] == 1.0
    assert [store.result(run).run for run in PLAN.runs] == [*PLAN.runs]


def test_a_failing_run_is_written_down_and_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    bad = Run("micro", 1)

    def failing(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
        for job in jobs:
            yield job, [Failure(run, "out of luck") if run == bad else trained(run) for run in job.runs]

    store = Store(tmp_path / "store")
    assert sweep(PLAN.runs, store, failing, lambda share: None) == [Failure(bad, "out of luck")]
    assert [store.has(run) for run in PLAN.runs] == [run != bad for run in PLAN.runs]
    lines = [json.loads(line) for line in (store.folder / FAILURES).read_text().splitlines()]
    assert lines == [{"preset": "micro", "seed": 1, "reason": "out of luck"}] * TRIES
    assert sweep(PLAN.runs, store, instant, lambda share: None) == []


def test_a_run_that_fails_takes_none_of_those_beside_it_down(tmp_path: Path) -> None:
    bad = Run("micro", 1)

    def all_or_nothing(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
        for job in jobs:
            failed = bad in job.runs
            yield job, [Failure(run, "out of luck") if failed else trained(run) for run in job.runs]

    store = Store(tmp_path / "store")
    assert sweep(PLAN.runs, store, all_or_nothing, lambda share: None) == [Failure(bad, "out of luck")]
    assert [store.has(run) for run in PLAN.runs] == [run != bad for run in PLAN.runs]


def test_a_disk_that_is_full_leaves_nothing_of_a_run(tmp_path: Path) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)
    large = replace(trained(run), weights={"W": torch.ones(100_000)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    try:
        with pytest.raises(BadInput, match=r"model\.safetensors: cannot be written"):
            store.add(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not store.has(run)
    assert [*(store.folder).rglob("*.safetensors")] == []


def test_two_who_begin_a_store_at_once_both_have_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / ".store.json.x7").write_text("")  # the other one's, not yet in its place; or left by a kill
    assert Store(folder).runs == ()


def test_weights_are_not_wanted_of_runs_that_were_kept_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store")
    store.add(replace(trained(Run("micro", 0)), weights=None))
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 1\npresets: [micro]\n")
    code, _, errors = command(capsys, plan, "--out", store.folder, "--weights", "--device", "cpu")
    assert code == 2
    assert "seed-0000: was kept without its weights; choose another folder" in errors


def test_a_task_that_grows_has_not_fallen_before_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = replace(MICRO.task, implicit_curriculum=False)
    growing = replace(MICRO, task=alone, recipe=replace(MICRO.recipe, growing=True))

    def learned(self: ManySeeds, number: int) -> torch.Tensor:
        return torch.zeros(len(self.seeds), 1)

    monkeypatch.setattr(ManySeeds, "step", learned)
    (outcome,) = train_seeds(Job("growing", (0,), growing), lambda share: None, "cpu", False)
    assert isinstance(outcome, Trained)
    assert outcome.result.fell == {"x2": 60}  # two hops from step 30 of 60 on: the first 20 steps that are whole


def test_whatever_stops_a_job_stops_no_other() -> None:
    def broken(job: Job, progress: object) -> list[Trained | Failure]:
        if job.preset == "micro":
            raise RuntimeError("no memory left\nand more")
        return [trained(run) for run in job.runs]

    jobs = [Job("micro", (0,), MICRO), Job("other", (0,), presets.preset("other"))]
    (_, failed), (_, made) = local(jobs, lambda job, share: None, broken)
    assert failed == [Failure(Run("micro", 0), "RuntimeError: no memory left")]
    assert isinstance(made[0], Trained)


def test_a_run_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, store.claimed([run]) as ours:
        assert ours == (run,)
        patched.setattr(store_module, "save_tensors", full)
        with pytest.raises(BadInput, match=r"seed-0000: cannot be written \(No space left on device\)"):
            store.add(trained(run))
    assert not store.has(run)
    assert sorted(path.name for path in store.folder.rglob("*") if path.is_file()) == ["micro-0", STORE]  # and a lock
    store.add(trained(run))
    assert {path.name for path in store.path(run).iterdir()} == {
        "config.json",
        "log.jsonl",
        RESULT,
        "model.safetensors",
    }


def test_nobody_claims_what_another_has_claimed_or_what_is_there(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    with one.claimed(PLAN.runs[:2]) as ours:
        assert ours == PLAN.runs[:2]
        with two.claimed(PLAN.runs[:4]) as theirs:
            assert theirs == PLAN.runs[2:4]
        one.add(trained(PLAN.runs[0]))
    with two.claimed(PLAN.runs[:2]) as left:
        assert left == PLAN.runs[1:2]


def slow(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
    """An engine that takes a while, so that two sweeps meet."""
    for job in jobs:
        time.sleep(0.3)
        yield job, [trained(run) for run in job.runs]


def swept_elsewhere(folder: Path, made: "multiprocessing.Queue[str]") -> None:
    """A sweep in another process; tells what it made itself."""
    presets.PRESETS.update(micro=MICRO, other=replace(MICRO, task=RetrievalTask(1, n_chains=2)))

    def noted(jobs: Iterable[Job], told: Told) -> Iterator[tuple[Job, list[Trained | Failure]]]:
        for job, outcomes in slow(jobs, told):
            for run in job.runs:
                made.put(str(run))
            yield job, outcomes

    sweep(Plan("mine", ("micro", "other"), 20).runs, Store(folder), noted, lambda share: None)


def test_two_sweeps_on_one_store_share_the_work_and_both_wait_for_all_of_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    made = context.Queue()
    both = [context.Process(target=swept_elsewhere, args=(tmp_path / "store", made)) for _ in range(2)]
    for process in both:
        process.start()
    told = [made.get(timeout=120) for _ in range(40)]
    for process in both:
        process.join(timeout=60)
    assert [process.exitcode for process in both] == [0, 0]
    assert sorted(told) == sorted(map(str, Plan("mine", ("micro", "other"), 20).runs))
    assert made.empty()


def test_a_store_of_another_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with pytest.raises(BadInput, match="holds something else than a sweep's runs"):
        Store(tmp_path / "mine")
    store = Store(tmp_path / "store")
    (store.folder / STORE).write_text('{"format": 99}')
    with pytest.raises(BadInput, match="format is 99; this version reads 1"):
        Store(store.folder)
    (store.folder / STORE).write_text('{"format": true}')
    with pytest.raises(BadInput, match="damaged"):
        Store(store.folder)
    (store.folder / STORE).write_text("{")
    with pytest.raises(BadInput, match="damaged"):
        Store(store.folder)


def test_damaged_runs_and_runs_of_other_settings_are_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)
    store.add(trained(run))
    whole = (store.path(run) / RESULT).read_text()
    damaged = (
        *("{", "[]", '{"preset": "micro"}', whole.replace("x2", "x7"), whole.replace("micro", "other")),
        *(whole.replace("0.1", wrong) for wrong in ('"a"', "NaN", "null", "[1]", "1" + "0" * 400)),
        *(whole.replace("20", wrong) for wrong in ('"20"', "2.5", "true")),
        *(whole.replace('"seed": 0', '"seed": false'), whole.replace('"cpu"', "[1]")),
    )
    for text in damaged:
        (store.path(run) / RESULT).write_text(text)
        with pytest.raises(BadInput, match="seed-0000"):
            store.result(run)
    (store.path(run) / RESULT).write_text(whole)
    assert store.result(run).losses == {"x1": 0.1, "x2": 0.1}
    monkeypatch.setitem(presets.PRESETS, "micro", replace(MICRO, recipe=replace(MICRO.recipe, steps=80)))
    with pytest.raises(BadInput, match="was made by other settings than micro has now; choose another folder"):
        store.result(run)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", *map(str, arguments)])
    out, errors = capsys.readouterr()
    return ended.value.code, out, errors


def test_the_command_trains_a_plan_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, store = tmp_path / "mine.yaml", tmp_path / "store"
    plan.write_text("seeds: 2\npresets: [micro, other]\n")
    code, out, _ = command(capsys, plan, "--out", store, "--device", "cpu", "--json")
    document = json.loads(out)
    assert (code, document["failures"], len(document["rows"])) == (0, [], 3 + 2)
    before = (store / "runs.csv").read_text()
    code, out, _ = command(capsys, plan, "--out", store, "--device", "cpu")
    assert code == 0
    assert "The page is at" in out
    assert (store / "runs.csv").read_text() == before


def test_the_command_tells_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(training_module, "train_seeds", broken)
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 1\npresets: [micro]\n")
    code, _, errors = command(capsys, plan, "--out", tmp_path / "store", "--device", "cpu")
    assert code == 1
    assert "micro, seed 0 failed: RuntimeError: no memory left" in errors


def test_a_damaged_run_is_told_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    store.add(trained(Run("micro", 1)))
    (store.path(Run("micro", 1)) / RESULT).write_text("{")
    monkeypatch.setattr(training_module, "train_seeds", lambda *_, **__: pytest.fail("nothing is to be trained"))
    plan = tmp_path / "mine.yaml"
    plan.write_text("seeds: 2\npresets: [micro]\n")
    code, out, errors = command(capsys, plan, "--out", store.folder, "--device", "cpu")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "seed-0001: a damaged run" in errors
    assert store.runs == (Run("micro", 1),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "nosuch: no such file"),
        (["census", "--device", "tpu"], "device 'tpu' is not usable here"),
        (["census", "--scale", "huge"], "'huge' is not one of"),
        (["census", "--gpus", "1"], "--address and --gpus are for --engine ray"),
        (["census", "--scale", "paper"], "--scale is for figure4"),
        (["census", "--engine", "ray", "--device", "tpu"], "device 'tpu' is not known"),
        (["census", "--engine", "ray", "--address", "127.0.0.1:9"], "127.0.0.1:9: no Ray cluster answers there"),
    ],
)
def test_what_cannot_be_swept_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, errors = command(capsys, *arguments, "--out", tmp_path / "new")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert message in errors
    assert not (tmp_path / "new").exists()
