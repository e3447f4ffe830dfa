"""Shared ground truth: a model whose circuit was written by hand, and small problems that finish fast."""

import pytest
import torch

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
