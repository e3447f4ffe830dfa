import torch

from circuits import Circuit, Head, OneHot, Roles
from circuits.checks.merging import merged
from circuits.mechanisms import Condition, Identity, Previous, Uniform


def test_merging_a_previous_token_head_joins_every_pair_of_neighbours_that_has_names(task):
    roles = task.examples(4, seed=0).roles
    low, high = Head(0, 0), Head(1, 0)
    circuit = Circuit({low: Previous(), high: OneHot({"query": "pair1.second"}, "identity")})
    both = {"pair1.second": "pair1.first", "query": "pair1.second"}
    assert [(giver, taker, dict(c.heads)) for giver, taker, c in merged(circuit, [low, high], roles)] == [
        (low, high, {low: simple, high: OneHot(both, "identity")}) for simple in (Uniform(), Identity())
    ] + [(high, low, {low: OneHot(both), high: simple}) for simple in (Uniform(), Identity())]


def test_heads_that_lead_one_role_to_two_others_cannot_be_merged(task):
    roles = task.examples(4, seed=0).roles
    heads = {Head(0, 0): OneHot({"query": "pair1.second"}), Head(1, 0): OneHot({"query": "pair1.first"})}
    assert list(merged(Circuit(heads), list(heads), roles)) == []


def test_heads_whose_rows_clash_or_have_no_names_cannot_be_merged():
    apart = Roles(("a", "b", "q"), torch.tensor([[[0], [3], [6]]]))  # no two of them are neighbours
    clash = {Head(0, 0): OneHot({"b": "a", "q": "uniform"}), Head(1, 0): OneHot({"q": "b"})}
    assert list(merged(Circuit(clash), list(clash), apart)) == []
    nameless = {Head(0, 0): Previous(), Head(1, 0): Previous(), Head(2, 0): OneHot({"q": "b"})}
    assert list(merged(Circuit(nameless), list(nameless), apart)) == []


def test_heads_that_lead_one_role_to_two_others_on_different_chains_can_be_merged():
    slots = torch.tensor([[[0, 1], [0, 1], [0, 1]]])
    roles = Roles(("a", "b", "q"), torch.tensor([[[0, 2], [1, 3], [4, 5]]]), {"slot": slots})
    on = {slot: Condition("slot", "a", (slot,)) for slot in (0, 1)}
    low, high = Head(0, 0), Head(1, 0)

    def leading(head, target, slot):
        return {head: OneHot({"q": target}, where={("q", target): on[slot]})}

    apart = Circuit(leading(low, "a", 0) | leading(high, "b", 1))
    one = OneHot([("q", "a"), ("q", "b")], where={("q", "a"): on[0], ("q", "b"): on[1]})
    assert {c.heads[taker] for _, taker, c in merged(apart, [low, high], roles)} == {one}
    same = Circuit(leading(low, "a", 0) | leading(high, "a", 1))
    everywhere = OneHot({"q": "a"}, where={("q", "a"): Condition("slot", "a", (0, 1))})
    assert {c.heads[taker] for _, taker, c in merged(same, [low, high], roles)} == {everywhere}
    assert list(merged(Circuit(leading(low, "a", 0) | leading(high, "b", 0)), [low, high], roles)) == []
