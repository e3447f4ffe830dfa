"""One small model and some examples for all tests of the entrances."""

import pytest

from tests.circuits.entrance.small import Copying, small_model


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def examples():
    return Copying().examples(16, 0)
