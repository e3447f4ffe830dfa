"""Information flow by the paper's assumptions, worked out by hand and held against its lemmas."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from circuits.task import Layout
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.information_flow import layers_until, spread
from tests.refusals import assert_refused


def on_the_line(piece):
    """The place of a piece on the line p0 x0 p1 x1 p2 ... (appendix B, definition 3)."""
    return 2 * int(piece[1:]) + (piece[0] == "x")


def test_the_first_layers_of_two_steps_are_those_worked_out_by_hand():
    start, first, second = list(spread(chain_layout(2), causal=True))[:3]
    assert start["query"] == {"p0", "x0"}
    assert first["query"] == {"p0", "x0", "p1"}  # the first member of its pair tells where that stands, no more
    assert first["pair1.second"] == {"p1", "x1", "x0", "p2"}
    assert second["query"] == {"p0", "x0", "p1", "x1", "p2"}
    _, both_ways, *_ = spread(chain_layout(2), causal=False)
    assert both_ways["pair1.first"] == {"p0", "x0", "p1", "x1"}
    assert both_ways["pair1.second"] == {"x0", "p1", "x1", "p2"}


@given(st.integers(1, 12).flatmap(lambda n_steps: st.permutations(range(1, n_steps + 1))), st.booleans())
def test_what_a_position_knows_is_contiguous_and_at_most_3_to_the_t_plus_1_long(order, causal):
    layout = chain_layout(len(order), order)
    states = [*spread(layout, causal=causal)]
    for t, known in enumerate(states):
        for pieces in known.values():
            places = sorted(map(on_the_line, pieces))
            assert places == list(range(places[0], places[-1] + 1))  # lemma 2
            assert len(places) <= 3**t + 1  # lemma 3
    for before, after in pairwise(states):  # attention goes only where a piece is shared, and nothing is forgotten
        for place, role in enumerate(layout.roles):
            seen = layout.roles[: place + 1] if causal else layout.roles
            shared = [before[other] for other in seen if before[role] & before[other]]
            assert after[role] == frozenset().union(*shared)


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


def test_what_is_no_chain_is_one_line():
    assert_refused("0 steps; expected at least 1", chain_layout, 0)
    assert_refused("the order 1, 1; expected each of the steps 1 to 2 once", chain_layout, 2, [1, 1])
