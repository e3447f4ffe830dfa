import pytest

from circuits import BadInput
from retrieval_interp import train_many
from retrieval_interp.models import presets
from tests.sweeps import MICRO


def test_many_models_are_trained_by_one_call_and_none_of_them_twice(tmp_path, monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)
    shares: list[float] = []
    runs = train_many(["micro"], 2, tmp_path, device="cpu", progress=shares.append)
    assert shares[-1] == 1
    assert [*zip(runs["preset"], runs["seed"], runs["symbol"], strict=True)] == [
        ("micro", seed, symbol) for seed in (0, 1) for symbol in ("x1", "x2")
    ]
    again = train_many(["micro"], 2, tmp_path, device="cpu")
    assert again.equals(runs)


def test_no_preset_and_no_seed_are_refused(tmp_path):
    for names, seeds in (([], 1), (["tiny"], 0)):
        with pytest.raises(BadInput, match="expected at least one"):
            train_many(names, seeds, tmp_path)
