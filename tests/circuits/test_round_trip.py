"""Any circuit that can be made is the same after it was saved and loaded."""

from functools import reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput, Circuit, FixedPattern, OneHot
from circuits.circuit_file import load_circuit, save_circuit
from circuits.mechanisms import Condition, Identity, Previous, Resample, Uniform
from circuits.roles import check_name
from tests.refusals import assert_refused


def is_name(text):
    try:
        check_name("role", text)
    except BadInput:
        return False
    return True


AWKWARD = ["yes", "null", "1.5", "~", "#", "mean", "L0H0", "'", '"', "é", "position", "3", "heads", "{x}"]
AWKWARD += ["- a", "a: b"]
names = st.one_of(st.sampled_from(AWKWARD), st.text(min_size=1, max_size=8)).filter(is_name)
targets = st.one_of(names, st.sampled_from(["uniform", "identity", "previous", "zero", "position 3"]))
labels = st.sets(st.integers(0, 999_999), min_size=1, max_size=3)
single = st.builds(Condition, st.one_of(st.just("position"), names), names, labels)
conditions = st.lists(single, min_size=1, max_size=3).map(lambda parts: reduce(or_, parts))
patterns = st.builds(
    lambda rows, kind: FixedPattern(np.eye(4)[rows], kind), st.just([0, 0, 1, 2]), st.sampled_from(["mean", "map"])
)


@st.composite
def one_hots(draw):
    ends = draw(st.lists(st.tuples(names, targets), min_size=1, max_size=4, unique=True))
    without = set()  # one row of a role may have no condition
    where = {}
    for row in ends:
        if row[0] in without or draw(st.booleans()):
            where[row] = draw(conditions)
        else:
            without.add(row[0])
    return OneHot(ends, draw(st.one_of(st.sampled_from(["zero", "uniform", "identity"]), patterns)), where)


simple = st.sampled_from([Uniform(), Identity(), Previous(), Resample()])
heads = st.dictionaries(
    st.tuples(st.integers(0, 999_999), st.integers(0, 9)), st.one_of(one_hots(), simple, patterns), max_size=4
)
texts = st.text(max_size=20)


@given(heads, texts, texts)
def test_any_circuit_is_the_same_after_it_was_saved_and_loaded(tmp_path_factory, given_heads, name, description):
    circuit = Circuit(given_heads, name, description)
    path = tmp_path_factory.mktemp("circuit") / "c.yaml"
    save_circuit(circuit, path)
    back = load_circuit(path)
    assert back == circuit
    assert (back.digest, back.name, back.description) == (circuit.digest, name, description)


@pytest.mark.parametrize("source", ["elsewhere", "mechanism"])
def test_a_row_that_a_file_would_lose_cannot_be_made(source):
    assert_refused("which means something else", OneHot, [(source, "a"), ("b", "a")])
