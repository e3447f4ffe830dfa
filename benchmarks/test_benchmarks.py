import sys
from pathlib import Path

import pytest
import torch

from benchmarks import ablation, recovery, size, training
from circuits import validate
from circuits.ground_truth import solves
from retrieval_interp.ground_truth.minimal_circuit import without_path
from retrieval_interp.models.presets import PRESETS, Architecture, Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask
from tests.handmade import InductionTask, induction_circuit, induction_model

MICRO = Preset(
    RetrievalTask(n_steps=1, n_chains=2),
    Architecture(n_layers=1, n_heads=2, d_model=16, d_head=8),
    Recipe(steps=1, batch=4, training_examples=4),
)


def test_no_benchmark_stands_in_the_way_of_the_standard_library():
    own = {path.stem for path in Path(ablation.__file__).parent.glob("*.py")}
    assert not own & sys.stdlib_module_names


@pytest.mark.parametrize(
    ("benchmark", "option", "few", "least"),
    [
        (ablation, "--examples", 1, 2),
        (recovery, "--circuits", 0, 1),
        (size, "--prompts", 1, 2),
        (training, "--rounds", 0, 1),
    ],
    ids=str,
)
def test_a_number_with_which_nothing_is_measured_is_refused(monkeypatch, capsys, benchmark, option, few, least):
    monkeypatch.setattr(sys, "argv", ["benchmark", f"{option}={few}"])
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    assert ended.value.code == 2
    assert f"argument {option}: '{few}'; expected a whole number from {least} on" in capsys.readouterr().err


def test_a_model_that_does_not_load_is_refused_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["benchmark", "--model", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        ablation.main()
    assert ended.value.code == 2
    assert f"{tmp_path / 'config.json'}" in capsys.readouterr().err.splitlines()[-1]


def test_the_training_benchmark_reports_both_ratios(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    monkeypatch.setitem(PRESETS, "micro", MICRO)
    result = training.measure("micro", rounds=1)
    assert result["ratio_eager"] == result["seconds_plain"] / result["seconds_ours"]
    assert result["share_of_limit"] == result["seconds_products"] / result["seconds_ours"]


def test_the_products_of_a_step_are_counted_as_by_hand():
    _, operations = training.products(MICRO, torch.float32)
    rows, read = 4 * 6, 4 * 2  # 4 sequences of 2 chains times 3; the only layer writes at the 2 queries
    # The input is 8 wide, keys and values 16; where the loss reads: queries, the heads' output, an MLP of 16x64 and
    # back, and an output of 4; three products for each.
    everywhere, at_queries = 8 * 16 + 2 * 16 * 16, 2 * 16 * 16 + 2 * 16 * 64 + 16 * 4
    linear = 3 * 2 * (rows * everywhere + read * at_queries)
    attention = 6 * 2 * (4 * 2) * 2 * 6 * 8  # scores of 2 queries on 6 keys and mixing, once forward and twice backward
    assert operations == linear + attention


def test_the_ablation_benchmark_counts_what_was_evaluated_and_the_loop_agrees():
    model, task, circuit = induction_model(), InductionTask(), induction_circuit()
    seconds, ran = ablation.recorded(lambda: validate(model, task, circuit, n_examples=32))
    assert seconds > 0
    assert circuit in {own for own, _ in ran}
    found = ablation.compared(model, task, lambda: validate(model, task, circuit, n_examples=32))
    assert found["furthest_loss"] < 1e-5
    assert found["ratio"] > 0
    assert found["circuits"] == len({own for own, _ in ran})


@pytest.mark.slow
def test_planted_circuits_solve_their_task_by_paths_of_which_none_but_backups_can_go():
    for seed in range(30):
        planted = recovery.plant(seed)
        assert solves(planted.circuit, planted.task)
        for path in planted.circuit.paths:
            assert solves(without_path(planted.circuit, path), planted.task) == (path in planted.backups)


def test_the_benchmark_of_size_ranks_every_head_and_ablates_the_costliest():
    model = size.of_shape(n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=16, n_ctx=20, d_vocab=50)
    result = size.measure(model, 256)
    assert result["heads"] == 4
    assert result["sequences"] == 2 * 256 + 4 * 128  # the range on all prompts, and four heads
    assert result["content_heads"] <= 4
