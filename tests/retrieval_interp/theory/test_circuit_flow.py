from circuits import Circuit, Head, OneHot
from circuits.circuit import AttentionPath
from circuits.mechanisms import Identity, Previous
from retrieval_interp.theory.circuit_flow import Carried, circuit_flow
from tests.handmade import ChainTask
from tests.refusals import assert_refused


def test_the_members_of_a_pair_are_joined_in_the_order_of_the_sequence():
    assert ChainTask(2).layout.joined == (("pair2.second", "pair2.first"), ("pair1.second", "pair1.first"))
    assert ChainTask(2).layout.pieces == ("p2", "x1", "x2", "p1", "x0", "p0")


def test_a_path_that_carries_nothing_new_is_told_from_one_that_is_forbidden():
    heads = {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "pair2.second", "pair1.second": "pair1.first"}),
        Head(2, 0): OneHot({"query": "pair1.second", "pair1.second": "uniform"}, "identity"),
        Head(3, 0): Identity(),
    }
    flow = circuit_flow(Circuit(heads), ChainTask(2).layout)
    assert flow.carried == (
        Carried(AttentionPath(Head(0, 0), "pair2.second", "pair2.first"), frozenset({"x1"}), True),
        Carried(AttentionPath(Head(0, 0), "pair1.second", "pair1.first"), frozenset({"x0"}), True),
        Carried(AttentionPath(Head(1, 0), "pair1.second", "pair1.first"), frozenset(), True),
        Carried(AttentionPath(Head(1, 0), "query", "pair2.second"), frozenset(), False),
        Carried(AttentionPath(Head(2, 0), "query", "pair1.second"), frozenset({"x1", "p1"}), True),
    )
    assert ["x1" in known["query"] for known in flow.known] == [False, False, False, True]
    assert "x2" not in flow.known[-1]["query"]


def test_a_path_that_does_not_fit_is_one_line():
    layout, back = ChainTask(2).layout, Circuit({"L0H0": {"pair2.second": "pair1.second"}})
    assert_refused("L0H0 pair2.second -> pair1.second is against the causal mask", circuit_flow, back, layout)
    unknown = Circuit({"L0H0": {"query": "pair9.first"}})
    assert_refused("L0H0 query -> pair9.first: unknown role 'pair9.first'", circuit_flow, unknown, layout)
