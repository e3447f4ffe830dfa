"""Heads ranked by gradients; the truth is planted or is that of one-by-one ablation."""

import pytest

from circuits import Circuit, Head, discover, evaluate, validate
from circuits.averages import averages
from circuits.discovery.ranking import costs_of_change
from circuits.ground_truth import compile_circuit
from circuits.losses.sequential_test import SequentialTest
from circuits.settings import deciding
from circuits.utils.kept import keeping
from tests.handmade import ChainTask, walking_circuit
from tests.refusals import assert_refused

N_STEPS = 2
EVERY = [Head(layer, index) for layer in range(4) for index in range(3)]


@pytest.fixture(scope="module")
def planted():
    task = ChainTask(N_STEPS)
    return compile_circuit(walking_circuit(N_STEPS), task, n_layers=4, n_heads=3), task


def test_the_costs_of_all_heads_add_up_to_the_cost_of_all_at_once(random_model, chains):
    means, examples = averages(random_model, chains), chains.examples(64, seed=1)
    idle = Circuit(dict.fromkeys(means.patterns, "idle"))
    costs = costs_of_change(random_model, Losses(chains), examples, means, Circuit(), idle)
    own, none = evaluate(random_model, chains, examples, [Circuit(), idle], averages=means).mean(dim=(1, 2)).tolist()
    assert set(costs) == {*means.patterns}
    assert sum(costs.values()) == pytest.approx(none - own, abs=0.02 * abs(none - own) + 1e-3)


class Losses:
    """A task without differences: the distance is the loss."""

    def __init__(self, task):
        self.roles, self.output_roles, self.loss_components = task.roles, task.output_roles, task.loss_components
        self.examples, self.losses = task.examples, task.losses


@pytest.mark.parametrize("head", [Head(0, 1), Head(2, 0)])
@pytest.mark.parametrize("kind", ["mean", "idle"])
def test_the_cost_of_a_single_change_is_that_of_its_ablation(random_model, chains, head, kind):
    means, examples = averages(random_model, chains), chains.examples(64, seed=1)
    changed = Circuit({head: means.patterns[head] if kind == "mean" else "idle"})
    costs = costs_of_change(random_model, Losses(chains), examples, means, Circuit(), changed)
    own, other = (
        evaluate(random_model, chains, examples, [Circuit(), changed], averages=means).mean(dim=(1, 2)).tolist()
    )
    assert costs == {head: pytest.approx(other - own, abs=1e-3 + 0.1 * abs(other - own))}


def test_a_planted_circuit_is_found_by_ranking_and_its_validation_names_what_was_not_tested(planted):
    model, task = planted
    with deciding(one_by_one=4):
        found = discover(model, task, n_examples=256)
        report = validate(model, task, found.circuit, n_examples=256)
    assert found.found
    assert {head for head, one in found.circuit.heads.items() if one.varies} <= {
        *walking_circuit(N_STEPS).heads_with_paths
    }
    assert {*found.circuit.heads} == {*EVERY}
    assert report.paper is None
    assert {head for head, one in found.circuit.heads.items() if one.varies} == {one.head for one in report.parts}
    assert "were not tested one by one" in " ".join(report.notes)


def stopped(folder, name, work):
    """Do some work and stop before all is done."""
    done = []
    with pytest.raises(KeyboardInterrupt), keeping(folder, {"model": name}):  # noqa: PT012
        done.append(work())
        raise KeyboardInterrupt
    return done[0]


def test_what_was_measured_before_work_was_stopped_is_not_measured_again(planted, tmp_path):
    model, task = planted
    examples, means = task.examples(64, seed=3), averages(model, task, n_examples=64)
    ways = {head: Circuit({head: "idle"}) for head in EVERY}
    first = SequentialTest(model, task, examples, 0.05, means)
    losses = stopped(tmp_path / "kept", "one", lambda: first.measure(ways.values()))
    with keeping(tmp_path / "kept", {"model": "one"}):
        again = SequentialTest(model, task, examples, 0.05, means)
        assert again.measure(ways.values()) == losses
        assert (first.n_evaluations, again.n_evaluations) == (64 * len(EVERY), 0)
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_is_no_unfinished_work_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused("is no folder of unfinished work", keeping(tmp_path, {}).__enter__)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_was_kept_of_another_model_is_measured_anew(planted, tmp_path):
    model, task = planted
    examples, means = task.examples(8, seed=3), averages(model, task, n_examples=64)
    for name in ("one", "other"):
        test = SequentialTest(model, task, examples, 0.05, means)
        stopped(tmp_path / "kept", name, lambda test=test: test.measure([Circuit({EVERY[0]: "idle"})]))
        assert test.n_evaluations == 8
