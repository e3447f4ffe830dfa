import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput, Circuit, Head, OneHot
from circuits.circuit import AttentionPath
from circuits.flow.circuit_flow import Carried, circuit_flow
from circuits.flow.layout import Layout
from circuits.mechanisms import Identity, Previous
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.information_flow import layers_until, spread


def on_the_line(piece):
    """The place of a piece on the line p0 x0 p1 x1 p2 ... (appendix B, definition 3)."""
    return 2 * int(piece[1:]) + (piece[0] == "x")


def test_the_first_layers_of_two_steps_are_those_worked_out_by_hand():
    start, first, second = list(spread(chain_layout(2), causal=True))[:3]
    assert start["query"] == {"p0", "x0"}
    assert first["query"] == {"p0", "x0", "p1"}  # the first member of its pair tells where that stands, no more
    assert first["pair1.second"] == {"p1", "x1", "x0", "p2"}
    assert second["query"] == {"p0", "x0", "p1", "x1", "p2"}


def test_without_a_mask_a_position_looks_both_ways():
    _, first, *_ = spread(chain_layout(2), causal=False)
    assert first["pair1.first"] == {"p0", "x0", "p1", "x1"}
    assert first["pair1.second"] == {"x0", "p1", "x1", "p2"}


orders = st.integers(1, 12).flatmap(lambda n_steps: st.permutations(range(1, n_steps + 1)))


@given(orders, st.booleans())
def test_what_a_position_knows_is_contiguous_and_at_most_3_to_the_t_plus_1_long(order, causal):
    for t, known in enumerate(spread(chain_layout(len(order), order), causal=causal)):
        for pieces in known.values():
            places = sorted(map(on_the_line, pieces))
            assert places == list(range(places[0], places[-1] + 1))  # lemma 2
            assert len(places) <= 3**t + 1  # lemma 3


@given(orders, st.booleans())
def test_attention_goes_only_where_a_piece_is_shared_and_nothing_is_forgotten(order, causal):
    layout = chain_layout(len(order), order)
    states = list(spread(layout, causal=causal))
    for before, after in pairwise(states):
        for place, role in enumerate(layout.roles):
            seen = layout.roles[: place + 1] if causal else layout.roles
            shared = [before[other] for other in seen if before[role] & before[other]]
            assert after[role] == frozenset().union(*shared)


@pytest.mark.parametrize(("n_steps", "full", "causal"), [(1, 2, 2), (3, 3, 3), (5, 3, 4), (7, 4, 4), (8, 4, 5)])
@pytest.mark.parametrize("last_first", [True, False])
def test_the_number_of_layers_is_known_for_some_lengths(n_steps, full, causal, last_first):
    layout = chain_layout(n_steps, None if last_first else range(1, n_steps + 1))
    assert layers_until(layout, "query", f"x{n_steps}", causal=False) == full
    assert layers_until(layout, "query", f"x{n_steps}", causal=True) == causal


def test_the_members_of_a_pair_are_joined_in_the_order_of_the_sequence():
    assert chain_layout(2).joined == (("pair2.second", "pair2.first"), ("pair1.second", "pair1.first"))
    assert chain_layout(2).pieces == ("p2", "x1", "x2", "p1", "x0", "p0")


def test_a_mask_of_any_form_hides_what_it_hides():
    hidden = {("query", "pair1.first")}  # the only one that tells where x1 stands
    *_, last = spread(chain_layout(1), causal=True, hidden=hidden)
    assert last["query"] == {"x0", "p0", "p1", "x1"}  # the second member, joined to the first, tells it too
    *_, last = spread(chain_layout(1), causal=True, hidden=hidden | {("pair1.second", "pair1.first")})
    assert last["query"] == {"x0", "p0"}


def test_who_knows_the_same_in_the_same_way_cannot_be_told_apart():
    # Both rooms are said to be cold, and only one of them to be mine.
    start = {"room1": frozenset({"cold", "p1"}), "room2": frozenset({"cold", "mine", "p2"})}
    alike = {"room1": ("room2",), "room2": ("room1",)}

    def told(asked):
        layout = Layout({**start, "query": asked}, frozenset({"p1", "p2"}), alike)
        return [*spread(layout, causal=True)][-1]["query"] - asked

    assert told(frozenset({"cold"})) == frozenset()
    assert told(frozenset({"mine"})) == {"cold", "p2"}


def test_what_stands_only_behind_is_never_known_with_a_mask():
    apart = Layout({"asked": frozenset("a"), "told": frozenset("ab")})
    assert layers_until(apart, "asked", "b", causal=True) is None
    assert layers_until(apart, "asked", "b", causal=False) == 1


@pytest.mark.parametrize("n_steps", range(1, 16))
def test_along_the_minimal_circuit_the_last_symbol_arrives_with_its_last_layer(n_steps):
    flow = circuit_flow(minimal_circuit(n_steps), chain_layout(n_steps))
    assert flow.layers_until("query", f"x{n_steps}") == 1 + math.ceil(math.log2(n_steps + 1))
    assert all(carried.allowed and carried.new for carried in flow.carried)


def test_a_path_that_carries_nothing_new_and_one_that_is_forbidden_are_told():
    heads = {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "pair2.second", "pair1.second": "pair1.first"}),
        Head(2, 0): OneHot({"query": "pair1.second"}, "identity"),
        Head(3, 0): Identity(),
    }
    flow = circuit_flow(Circuit(heads), chain_layout(2))
    assert flow.carried == (
        Carried(AttentionPath(Head(0, 0), "pair2.second", "pair2.first"), frozenset({"x1"}), True),
        Carried(AttentionPath(Head(0, 0), "pair1.second", "pair1.first"), frozenset({"x0"}), True),
        Carried(AttentionPath(Head(1, 0), "pair1.second", "pair1.first"), frozenset(), True),
        Carried(AttentionPath(Head(1, 0), "query", "pair2.second"), frozenset(), False),
        Carried(AttentionPath(Head(2, 0), "query", "pair1.second"), frozenset({"x1", "p1"}), True),
    )
    assert flow.layers_until("query", "x1") == 3
    assert flow.layers_until("query", "x2") is None


def test_a_row_that_leads_to_no_role_carries_nothing():
    flow = circuit_flow(
        Circuit({Head(0, 0): OneHot({"pair1.second": "uniform", "query": "pair1.first"})}), chain_layout(1)
    )
    assert [str(carried.path) for carried in flow.carried] == ["L0H0 query -> pair1.first"]


def test_what_does_not_fit_is_one_line():
    with pytest.raises(BadInput, match="0 steps; expected at least 1"):
        chain_layout(0)
    with pytest.raises(BadInput, match="the order 1, 1; expected each of the steps 1 to 2 once"):
        chain_layout(2, [1, 1])
    with pytest.raises(BadInput, match=r"L0H0 pair2.second -> pair1.second is against the causal mask"):
        circuit_flow(Circuit({Head(0, 0): OneHot({"pair2.second": "pair1.second"})}), chain_layout(2))
    with pytest.raises(BadInput, match=r"L0H0 query -> pair9.first: unknown role 'pair9.first'"):
        circuit_flow(Circuit({Head(0, 0): OneHot({"query": "pair9.first"})}), chain_layout(2))
