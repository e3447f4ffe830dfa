"""Heads that look for themselves among replaced heads, in models whose circuit is known."""

from dataclasses import replace

import pytest
import torch

from circuits import AttentionPath, Circuit, FixedPattern, Head, OneHot, Roles
from circuits.checks.carries import carries
from circuits.checks.experiment import Experiment
from circuits.checks.self_consistency import SelfConsistency, path_attention, self_consistency
from circuits.ground_truth import compile_circuit
from circuits.mechanisms import Condition, Uniform
from tests.handmade import ChainTask, walking_circuit
from tests.refusals import assert_refused

LOW, HIGH = Head(0, 0), Head(1, 0)
JOIN, ANSWER = OneHot({"pair1.second": "pair1.first"}), OneHot({"query": "pair1.second"})
PATH = AttentionPath(HIGH, "query", "pair1.second")


def one_step(n_layers=2):
    task = ChainTask(1)
    return compile_circuit(Circuit({LOW: JOIN, HIGH: ANSWER}), task, n_layers=n_layers), task


def test_a_compiled_circuit_is_self_consistent():
    task, circuit = ChainTask(3), walking_circuit(3)
    found = self_consistency(compile_circuit(circuit, task), task, circuit, n_examples=128)
    assert found.verdict.decision == "holds"
    assert [one.head for one in found.heads] == [*circuit.heads]
    for one in found.heads:
        assert one.loss.loss.mean < 1e-6
        assert all(own.attention.mean > 0.999 for own in one.along)
    assert {own.label for own in found.heads[0].along} == {0, 1, 2}
    assert SelfConsistency.model_validate_json(found.model_dump_json()) == found


def test_a_head_loses_its_way_if_the_circuit_takes_away_what_it_looks_for():
    """The circuit joins no pairs, and gives the answer all the same: replaced, its head need not look."""
    model, task = one_step()
    experiment = Experiment(model, task, Circuit({LOW: "identity", HIGH: ANSWER}), n_examples=128)
    assert experiment.combined.loss.mean < 1e-6
    checked = carries(experiment)
    assert {one.name: one.decision for one in checked.verdicts} == {"flow check": "fails", "self-consistent": "fails"}
    (high,) = checked.self_consistency.heads
    assert high.decision == "fails"
    assert high.loss.excess == pytest.approx(1.0, abs=0.01)
    # No pair shares a symbol with the query: its attention is spread evenly over three instances.
    assert min(one.attention.mean for one in high.along) == pytest.approx(1 / 3, abs=1e-3)
    assert high.along[0].others["elsewhere"] == pytest.approx(2 / 3, abs=1e-3)


def test_the_lower_head_that_a_head_misses_is_named():
    """The blind circuit again: with the lower head intact as well, the upper one finds its place."""
    model, task = one_step(n_layers=3)
    blind = Circuit({LOW: "identity", HIGH: ANSWER, Head(2, 0): "identity"})
    found = self_consistency(model, task, blind, n_examples=128)
    (high,) = found.heads
    assert [*high.restored_by] == [LOW]
    assert high.restored_by[LOW].loss.mean < 1e-6
    assert "L1H0 by itself fails: 1.0000 of the range" in found.verdict.sentence
    assert found.verdict.sentence.endswith("restored with L0H0 intact as well.")


def test_a_head_that_looks_at_another_role_than_the_circuit_says_is_not_self_consistent():
    model, task = one_step()
    wrong = Circuit({LOW: JOIN, HIGH: OneHot({"query": "pair1.first"})})
    found = self_consistency(model, task, wrong, n_examples=128)
    assert [one.decision for one in found.heads] == ["fails", "fails"]  # with L1H0 replaced, the answer is wrong
    assert found.verdict.decision == "fails"
    others = found.heads[1].along[0].others
    assert max(others, key=others.get) == "pair1.second"
    assert found.heads[1].loss.loss.mean < 1e-6  # intact, it does the right thing; but not what the circuit says
    assert found.heads[1].restored_by == {}


@pytest.mark.parametrize(("strength", "most"), [(0.01, True), (0.0, False)])
def test_a_head_looks_where_no_other_position_gets_as_much_attention_even_if_it_is_less_than_half(strength, most):
    model, task = one_step()
    model.blocks[1].attn.W_Q.data.mul_(strength)  # at 0, all positions get the same
    circuit = Circuit({LOW: JOIN, HIGH: ANSWER})
    for own in path_attention(Experiment(model, task, circuit, n_examples=64).test, circuit, [HIGH]):
        assert own.attention.mean < 0.5
        assert (own.most.mean, own.decision) == (most, "holds" if most else "fails")


def test_a_path_that_holds_on_no_example_is_undecided():
    model, task = one_step()
    rows = [("query", "pair1.second"), ("query", "pair1.first")]
    nowhere = OneHot(rows, where={rows[0]: Condition("slot", "query", 9)})
    (_, high) = self_consistency(model, task, Circuit({LOW: JOIN, HIGH: nowhere}), n_examples=8).heads
    along = next(one for one in high.along if one.path == PATH)
    assert (along.decision, along.label, along.attention.n_examples) == ("undecided", None, 0)


class TwoNames(ChainTask):
    """The same task, but pair1.second has another name in the first instance, whose own role is elsewhere."""

    def examples(self, n, seed):
        examples = super().examples(n, seed)
        roles = examples.roles
        other = roles["pair1.second"].clone()
        other[:, 1:] = 0
        positions = torch.cat([roles.positions, other[:, None]], dim=1)
        groups = {name: torch.cat([own, own[:, -1:]], dim=1) for name, own in roles.groups.items()}
        return replace(examples, roles=Roles((*roles.names, "other"), positions, groups))


def test_attention_on_the_target_is_not_counted_again_under_another_name():
    model, _ = one_step()
    found = self_consistency(model, TwoNames(1), Circuit({LOW: JOIN, HIGH: ANSWER}), n_examples=32)
    for own in found.heads[1].along:
        assert own.attention.mean > 0.999
        assert own.others["other"] < 0.001


def test_only_the_instances_that_a_condition_covers_count():
    model, task = one_step()
    slot = Condition("slot", "pair1.second", (1, 2))
    some = OneHot({"query": "pair1.second"}, elsewhere="uniform", where={("query", "pair1.second"): slot})
    found = self_consistency(model, task, Circuit({LOW: JOIN, HIGH: some}), n_examples=32)
    assert [own.label for own in found.heads[1].along] == [1, 2]
    assert all(own.decision == "holds" for own in found.heads[1].along)


def test_a_label_whose_loss_is_high_is_not_hidden_by_the_average():
    """Pair 1 is joined in two of three slots only, so the answering head by itself misses the third."""
    model, task = one_step(n_layers=3)
    joins = torch.eye(9)[[0, 1, 2, 2, 4, 4, 6, 7, 8]]  # slot 0 stands at 0 and 1, and is not joined
    partly = Circuit({LOW: FixedPattern(joins, "given"), HIGH: ANSWER, Head(2, 0): "identity"})
    found = self_consistency(model, task, partly, n_examples=128, threshold=0.5)
    assert found.intact.decision == "below"
    assert found.intact.excess == pytest.approx(1 / 3, abs=0.01)
    assert (found.by_label.group, found.by_label.role) == ("slot", "pair1.second")
    assert [mean.mean > 0.6 for mean in found.by_label.means.values()] == [True, False, False]
    assert found.verdict.decision == "fails"
    assert found.heads[0].by_label == found.by_label  # it is the only head with paths
    assert [*found.restored_by] == [LOW]


def test_a_circuit_that_leaves_lower_heads_intact_is_undecided():
    model, task = one_step()
    both = carries(Experiment(model, task, Circuit({HIGH: ANSWER}), n_examples=128)).verdicts
    assert [(one.name, one.decision) for one in both] == [("flow check", "undecided"), ("self-consistent", "undecided")]
    found = self_consistency(model, task, Circuit({HIGH: ANSWER}), n_examples=128)
    assert (found.unnamed, found.intact.decision, found.verdict.decision) == (1, "below", "undecided")


class OnlyAverages:
    def __init__(self, task):
        self.roles, self.loss_components, self.output_roles = task.roles, task.loss_components, ("query",)
        self.examples, self.losses = task.examples, task.losses


def test_a_task_that_gives_averages_only_is_not_split():
    model, task = one_step()
    found = self_consistency(model, OnlyAverages(task), Circuit({LOW: JOIN, HIGH: ANSWER}), n_examples=128)
    assert found.by_label is None
    assert found.verdict.decision == "holds"


@pytest.mark.parametrize(("n_examples", "decision"), [(128, "holds"), (32, "undecided")])
def test_without_a_group_attention_has_no_label_and_few_examples_show_no_more_than_it(
    model, task, circuit, n_examples, decision
):
    found = self_consistency(model, task, circuit, n_examples=n_examples)
    along = [own for one in found.heads for own in one.along]
    assert [(own.label, own.decision) for own in along] == [(None, "holds")] * 2  # far from a half
    assert found.verdict.decision == decision  # a loss is not so far from 5% of the range


def test_a_circuit_without_paths_cannot_be_self_consistent_and_no_head_of_it_has_to_find_its_way(model, task):
    blind = Circuit({LOW: Uniform(), HIGH: "idle"})
    assert_refused("no path between roles", self_consistency, model, task, blind)
    checked = carries(Experiment(model, task, blind, n_examples=8))
    assert checked.flow is checked.self_consistency is None  # the task has no layout
    assert [one.decision for one in checked.verdicts] == ["holds"]


def test_rows_to_fixed_positions_that_hold_where_a_role_stands_are_judged_as_the_path_to_it():
    model, task = one_step()
    places = [*task.positions_of("pair1.second")]
    ends = [("query", f"position {place}") for place in places]
    where = {row: Condition("position", "pair1.second", place) for row, place in zip(ends, places, strict=True)}
    for answer in (ANSWER, OneHot(ends, where=where)):
        found = carries(Experiment(model, task, Circuit({LOW: "identity", HIGH: answer}), n_examples=64))
        assert found.self_consistency.heads[-1].decision == "fails"  # it misses what L0H0 writes
    alone = carries(Experiment(model, task, Circuit({LOW: JOIN, HIGH: OneHot(ends, where=where)}), n_examples=256))
    assert alone.self_consistency.verdict.decision == "holds"
    assert {str(one.path) for one in alone.self_consistency.heads[1].along} == {
        f"L1H0 {' -> '.join(row)}" for row in ends
    }
