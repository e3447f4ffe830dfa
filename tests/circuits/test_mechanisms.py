import pytest
import torch

from circuits import Circuit, FixedPattern, Head, OneHot, Roles, load_circuit, save_circuit
from circuits.mechanisms import Condition, Identity, Previous, Uniform
from tests.refusals import assert_refused

# One example of four positions: the query at 3 sees the pair at 0 and 1.
ROLES = Roles(("query", "one", "second"), torch.tensor([[[3], [0], [1]]]))


@pytest.mark.parametrize(
    ("mechanism", "rows"),
    [
        (Uniform(), [[1, 0, 0, 0], [1 / 2] * 2 + [0, 0], [1 / 3] * 3 + [0], [1 / 4] * 4]),
        (Identity(), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]),
        (Previous(), [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
        (OneHot({"query": "second", "second": "one"}), [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]),
    ],
)
def test_a_mechanism_gives_its_pattern(mechanism, rows):
    assert torch.allclose(mechanism.pattern(ROLES, 4)[0], torch.tensor(rows).float())
    assert Previous().pattern(ROLES, 1)[0].tolist() == [[1]]


def test_rows_on_no_path_follow_elsewhere():
    identity = OneHot({"query": "one"}, elsewhere="identity").pattern(ROLES, 4)[0]
    assert identity.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert OneHot({"query": "one"}, elsewhere="uniform").pattern(ROLES, 4)[0][1].tolist() == [0.5, 0.5, 0, 0]


def test_a_row_taken_from_its_path_becomes_uniform_and_the_others_stay():
    mechanism = OneHot({"query": "second", "second": "one"}).with_row("query", "uniform")
    pattern = mechanism.pattern(ROLES, 4)[0]
    assert pattern[3].tolist() == [0.25] * 4
    assert pattern[1].tolist() == [1, 0, 0, 0]
    assert mechanism.paths == (("second", "one"),)


def test_two_roles_at_one_position_may_not_want_different_rows():
    roles = Roles(("a", "b", "c"), torch.tensor([[[2], [2], [0]]]))
    assert_refused("same position", OneHot({"a": "c", "b": "identity"}).pattern, roles, 3)


IN_SLOTS = Roles(  # two chains of two examples; their pairs stand in slots 0 and 1, and in 1 and 0
    ("query", "one"),
    torch.tensor([[[2, 3], [0, 1]], [[2, 3], [1, 0]]]),
    {"slot": torch.tensor([[[0, 1], [0, 1]], [[0, 1], [1, 0]]])},
)


SLOT_0, ROW = Condition("slot", "one", (0,)), ("query", "one")


def test_a_row_with_a_condition_is_there_on_some_chains_and_elsewhere_on_the_others():
    on_slot_0 = OneHot([ROW], "identity", {ROW: SLOT_0})
    pattern = on_slot_0.pattern(IN_SLOTS, 4)
    assert pattern[0, 2:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert pattern[1, 2:].tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert str(on_slot_0) == "query -> one on slot 0; elsewhere identity"


def test_a_condition_goes_with_its_row():
    both = OneHot({"query": "one", "one": "one"}, where={("query", "one"): Condition("slot", "one", (1,))})
    removed = both.with_row("query", "uniform").pattern(IN_SLOTS, 4)[0]
    assert removed[2].tolist() == [0, 0, 0, 0]
    assert removed[3].tolist() == [0.25] * 4
    assert both.without_row("query").where == ()
    assert both != OneHot({"query": "one", "one": "one"})


def test_a_role_may_attend_elsewhere_on_other_chains():
    both = OneHot([ROW, ("query", "query")], where={ROW: SLOT_0, ("query", "query"): Condition("slot", "one", (1,))})
    assert both.pattern(IN_SLOTS, 4)[0, 2:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    changed = both.with_row("query", "identity", was="one")
    assert changed.pattern(IN_SLOTS, 4)[0, 2:].tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    assert both.without_row("query", "query") == OneHot([ROW], where={ROW: SLOT_0})


def test_a_row_without_a_condition_is_the_default_of_its_role():
    for default, rows in {
        "position 1": [[1, 0, 0, 0], [0, 1, 0, 0]],
        "query": [[1, 0, 0, 0], [0, 0, 0, 1]],
        "uniform": [[1, 0, 0, 0], [0.25] * 4],
    }.items():
        head = OneHot([ROW, ("query", default)], "identity", {ROW: SLOT_0})
        assert head.pattern(IN_SLOTS, 4)[0, 2:].tolist() == rows
    assert OneHot({"query": "position 0"}).paths == ()


def test_a_default_row_that_becomes_another_row_holds_on_all_instances():
    both = OneHot([ROW, ("query", "query")], where={ROW: SLOT_0})
    assert both.with_row("query", "one", was="query") == OneHot({"query": "one"})


def test_rows_that_become_the_same_one_keep_their_conditions_at_different_roles(tmp_path):
    at_query = Condition("slot", "query", (1,))
    both = OneHot([ROW, ("query", "query")], where={ROW: SLOT_0, ("query", "query"): at_query})
    moved = both.with_row("query", "query", was="one")
    assert moved.rows == (("query", "query"),)
    there = dict(moved.where)["query", "query"]
    assert torch.equal(there.holds(IN_SLOTS), SLOT_0.holds(IN_SLOTS) | at_query.holds(IN_SLOTS))
    assert str(moved) == "query -> query on slot 0 of one or slot 1"
    circuit = Circuit({Head(0, 0): moved})
    save_circuit(circuit, tmp_path / "circuit.yaml")
    assert load_circuit(tmp_path / "circuit.yaml").digest == circuit.digest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Condition("slot", "one", ()), "at least one label"),
        (lambda: OneHot({}), "at least one path"),
        (lambda: OneHot([ROW], where={("one", "query"): SLOT_0}), "does not exist"),
        (lambda: OneHot([("query", "one"), ("query", "query")]), "expected a condition on all but one"),
        (lambda: OneHot([("query", "one"), ("query", "one")]), "rows repeat"),
        (lambda: Condition("colour", "one", (0,)).holds(IN_SLOTS), "the groups are position, slot"),
        (lambda: Condition("slot", "last", (0,)).holds(IN_SLOTS), "the roles are query, one"),
        (lambda: Roles(("a",), torch.zeros(1, 1, 2).long(), {"slot": torch.zeros(1, 1, 1).long()}), "slot"),
        (lambda: OneHot({"query": "position 3"}).pattern(IN_SLOTS, 4), "against the causal mask"),
        (lambda: FixedPattern(torch.ones(2, 3)), "the same length"),
        (lambda: FixedPattern(torch.full((4, 4), 0.25)).pattern(ROLES, 4), "causal mask"),
        (lambda: FixedPattern(2 * torch.eye(2)), "more than 1"),
        (lambda: FixedPattern(-torch.eye(2)), "not a weight"),
        (lambda: FixedPattern(torch.full((2, 2), torch.nan)), "not a weight"),
        (lambda: FixedPattern(torch.eye(2), "odd"), "mean, map, given"),
        (lambda: FixedPattern(torch.eye(2)).pattern(ROLES, 4), "of 2 positions; the examples have 4"),
    ],
)
def test_what_is_no_condition_or_fixed_pattern_is_refused(wrong, message):
    assert_refused(message, wrong)


def test_a_fixed_pattern_is_the_same_in_every_example_and_known_by_its_numbers():
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    fixed = FixedPattern(weights, "mean")
    assert torch.equal(fixed.pattern(ROLES, 2)[0], weights)
    assert fixed == FixedPattern(weights.clone(), "mean")
    assert hash(fixed) == hash(FixedPattern(weights.clone(), "mean"))
    assert fixed != FixedPattern(weights)
    assert fixed != FixedPattern(torch.eye(2), "mean")
    assert Circuit({Head(0, 0): fixed}).digest != Circuit({Head(0, 0): FixedPattern(torch.eye(2), "mean")}).digest


def test_rows_on_no_path_may_be_those_of_a_fixed_pattern():
    mean = FixedPattern(torch.full((4, 4), 0.1).tril(), "mean")
    pattern = OneHot({"query": "second"}, mean).pattern(ROLES, 4)[0]
    assert torch.equal(pattern[:3], mean.weights[:3])
    assert pattern[3].tolist() == [0, 1, 0, 0]
