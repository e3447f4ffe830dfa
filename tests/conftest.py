"""Shared ground truth: a model whose circuit was written by hand, and small problems that finish fast."""

import pytest
import torch

from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.presets import Architecture
from tests.handmade import InductionProblem, induction_circuit, induction_model

torch.set_num_threads(1)


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
