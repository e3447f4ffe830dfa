import torch

from benchmarks import training
from retrieval_interp.presets import PRESETS, Architecture, Preset, Recipe
from retrieval_interp.task import RetrievalTask

MICRO = Preset(
    RetrievalTask(n_steps=1, n_chains=2),
    Architecture(n_layers=1, n_heads=2, d_model=16, d_head=8),
    Recipe(steps=1, batch=4, training_examples=4),
)


def test_the_training_benchmark_reports_both_ratios(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    monkeypatch.setitem(PRESETS, "micro", MICRO)
    result = training.measure("micro", rounds=1)
    assert result["ratio_eager"] == result["seconds_plain"] / result["seconds_ours"]
    assert result["share_of_limit"] == result["seconds_products"] / result["seconds_ours"]


def test_the_products_of_a_step_are_counted_as_by_hand():
    _, operations = training.products(MICRO, torch.float32)
    rows, positions = 24, 6  # 4 sequences of 2 chains times 3
    # input and output 8 and 4 wide, four 16x16 attention matrices, an MLP of 16x64 and back; three products for each
    linear = 3 * 2 * rows * (8 * 16 + 16 * 4 + 4 * 16 * 16 + 2 * 16 * 64)
    attention = 6 * 2 * (4 * 2) * positions * positions * 8  # scores and mixing, once forward and twice backward
    assert operations == linear + attention
