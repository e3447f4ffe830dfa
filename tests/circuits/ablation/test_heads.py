import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, Head, Identity, OneHot, Previous, Uniform
from circuits.heads import Heads

heads = st.builds(Head, st.integers(0, 3), st.integers(0, 3))
mechanisms = st.sampled_from([Uniform(), Identity(), Previous(), OneHot({"a": "b"}), OneHot({"a": "b"}, "uniform")])
maps = st.dictionaries(heads, mechanisms)


@given(maps)
def test_heads_are_a_mapping_in_rising_order(found):
    assert [*Heads(found).items()] == sorted(found.items(), key=lambda item: item[0])
    assert len(Heads(found)) == len(found)
    assert Heads(found) == found
    assert (Head(9, 9) in Heads(found)) is False


@given(maps, heads, mechanisms)
def test_a_replaced_head_changes_nothing_else(found, head, mechanism):
    assert Heads(found).replaced(head, mechanism) == {**found, head: mechanism}
    assert Heads(found).replaced(head, mechanism).without([head]) == {h: m for h, m in found.items() if h != head}


@given(maps, maps)
def test_equal_circuits_have_the_same_digest_and_others_another(one, other):
    same = Circuit(one) == Circuit(other)
    assert same == (one == other)
    assert (Heads(one).digest == Heads(other).digest) == same
    assert not same or hash(Circuit(one)) == hash(Circuit(other))


def test_a_digest_is_the_same_in_every_process():
    made = 'Heads({Head(0, 1): OneHot({"query": "first", "a": "b"}), Head(2, 0): Uniform()}).digest'
    names = "from circuits.heads import Head, Heads; from circuits import OneHot, Uniform"
    code = f"{names}; print({made})"
    said = subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": "7"}, text=True)
    assert said.strip() == Heads({Head(0, 1): OneHot({"query": "first", "a": "b"}), Head(2, 0): Uniform()}).digest


def test_layers_that_did_not_change_are_shared():
    before = Heads({Head(layer, head): Uniform() for layer in range(3) for head in range(2)})
    after = before.replaced(Head(1, 0), Identity())
    assert [after.layer(layer) is before.layer(layer) for layer in range(3)] == [True, False, True]
