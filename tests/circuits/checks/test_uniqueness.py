"""Other circuits that do as well: other targets of paths, and fewer heads."""

from dataclasses import replace

import pytest
import torch

from circuits import Circuit, Head, OneHot, Roles, validate
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import minimality
from circuits.checks.uniqueness import _holding_the_same, merged, uniqueness
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit
from circuits.mechanisms import Condition, Identity, Previous, Uniform
from tests.handmade import ChainTask, walking_circuit

FETCH = AttentionPath(Head(1, 0), "query", "pair1.second")


def unique(model, task, circuit, n_examples=128):
    experiment = Experiment(model, task, circuit, n_examples=n_examples)
    return uniqueness(experiment, minimality(experiment))


def test_every_path_that_matters_directly_is_led_to_every_other_role_that_its_source_can_see(model, task, circuit):
    found = unique(model, task, circuit)
    assert {path: [*roles] for path, roles in found.targets.items()} == {FETCH: ["pair1.first"]}
    # The answer is the wrong symbol: (1 - 0)² + (0 - 1)² = 2; one loss can count 1 more than another at most.
    assert found.targets[FETCH]["pair1.first"].loss.mean == pytest.approx(2.0, abs=1e-3)
    assert found.targets[FETCH]["pair1.first"].excess == 1.0
    assert found.as_good == found.merges == ()
    assert found.notes == ("Tried: other targets of paths, 1; merges of heads, 0; none does as well.",)


class WithATwin:
    """The induction problem with a second name for pair1.second: no loss can tell the two apart."""

    roles = ("query", "pair1.first", "pair1.second", "twin")
    loss_components = ("x1",)
    output_roles = ("query",)

    def __init__(self, task):
        self.task = task
        self.losses = task.losses

    def examples(self, n, seed):
        examples = self.task.examples(n, seed)
        positions = examples.roles.positions
        return replace(examples, roles=Roles(self.roles, torch.cat([positions, positions[:, 2:]], dim=1)))


def test_a_path_that_could_as_well_lead_elsewhere_is_told_and_the_circuit_holds_all_the_same(model, task, circuit):
    report = validate(model, WithATwin(task), circuit, n_examples=128)
    assert report.decision == "holds", report.headline
    assert report.uniqueness.as_good == ((FETCH, "twin"),)
    assert f"these may do as well: another target: {FETCH} (twin)." in report.notes[-1]


def test_roles_that_hold_the_same_symbol_by_the_layout_are_one_target():
    """x1 stands in pair1.second and pair2.first; whether a query takes it from one or the other, it has x1."""
    task = ChainTask(2, n_chains=2)
    circuit = Circuit({"L0H0": {"pair2.second": "pair2.first"}, "L1H0": {"query": "pair2.first"}})
    tried = Experiment(compile_circuit(walking_circuit(2), task), task, circuit, n_examples=8)
    assert _holding_the_same(tried, "pair2.first") == ("pair1.second",)
    assert _holding_the_same(tried, "pair2.second") == ()


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


@pytest.mark.slow
def test_heads_that_could_be_one_are_told_and_only_those():
    """The query takes x1 and x2 from the first pair, then x3 and x4 from the third, each filled by a head below."""
    joined = {f"pair{k}.second": f"pair{k}.first" for k in range(1, 5)}
    filled = {"L1H0": {"pair1.second": "pair2.second"}, "L1H1": {"pair3.second": "pair4.second"}}
    asked = {"L2H0": {"query": "pair1.second"}, "L3H0": {"query": "pair3.second"}}
    circuit, task = Circuit({"L0H0": joined, **filled, **asked}), ChainTask(4)
    found = unique(compile_circuit(circuit, task), task, circuit)
    # L1H0 only tells the query where the third pair stands, so three heads are left. Of those the query's two exclude
    # each other; the third pair can be filled as late as x1 is fetched, or x1 be fetched as early as it is filled;
    # filled when the query comes for it, or visited when it is filled, it has no x4 yet.
    fewer = {f"{merge.giver} into {merge.taker}" for merge in found.merges if merge.tested.decision != "above"}
    assert fewer == {"L1H1 into L2H0", "L2H0 into L1H1"}
    others = {f"{merge.giver} into {merge.taker}" for merge in found.merges} - fewer
    assert others == {"L1H1 into L3H0", "L3H0 into L1H1"}
    assert "fewer heads" in found.notes[0]
