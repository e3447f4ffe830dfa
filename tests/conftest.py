"""Shared ground truth: a model whose circuit was written by hand, and small problems that finish fast."""

import tests.annotations  # noqa: F401, I001  before everything else

from dataclasses import replace

import pytest
import torch
from hypothesis import settings

from benchmarks.untrained import write_untrained
from retrieval_interp import RetrievalTask, VectorTransformer, presets
from retrieval_interp.presets import Architecture
from retrieval_interp.sweep.many_seeds import ManySeeds
from tests.handmade import InductionProblem, induction_circuit, induction_model
from tests.sweeps import MICRO

torch.set_num_threads(1)
settings.register_profile("patient", deadline=None)  # machines are noisy: nothing is said of time here
settings.load_profile("patient")


@pytest.fixture(scope="session")
def problem() -> InductionProblem:
    return InductionProblem()


@pytest.fixture(scope="session")
def model():
    return induction_model()


@pytest.fixture(scope="session")
def circuit():
    return induction_circuit()


@pytest.fixture(scope="session")
def task():
    return RetrievalTask(n_steps=2, n_chains=2)


@pytest.fixture(scope="session")
def random_model(task):
    cfg = Architecture(n_layers=3, n_heads=2, d_model=32, d_head=16).config(task)
    return VectorTransformer(cfg, seed=3).eval()


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """A model directory with a transformer that reads equations and has learned nothing."""
    folder = tmp_path_factory.mktemp("untrained")
    write_untrained(folder)
    return folder


@pytest.fixture
def micro_presets(monkeypatch):
    """Two presets that are trained in a second, without a compiler."""
    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)
    monkeypatch.setitem(presets.PRESETS, "other", replace(MICRO, task=RetrievalTask(1, n_chains=2)))
    monkeypatch.setattr(ManySeeds, "compile", lambda self: None)
