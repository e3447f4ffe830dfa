"""Interchange interventions in compiled models, in which it is known by hand where each symbol passes."""

import pytest
import torch

from benchmarks.ground_truth.levels import model_of
from benchmarks.recovery import plant
from circuits import Circuit, Examples, Roles
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Mean
from retrieval_interp import ChainTask, interchange
from retrieval_interp.interchange.interchange import RANDOM, InterchangeResult
from retrieval_interp.tasks.high_level import exchange
from tests.handmade import walking_circuit
from tests.refusals import assert_refused

WALKING = walking_circuit(3)
DOUBLING = Circuit(
    {
        "L0H0": {f"pair{k}.second": f"pair{k}.first" for k in (1, 2, 3)},
        "L1H0": {"query": "pair1.second", "pair2.second": "pair3.second"},
        "L2H0": {"query": "pair2.second"},
    }
)
TASK = ChainTask(3, n_chains=4)


def run(circuit, task=TASK, **more):
    return interchange(compile_circuit(circuit, task), task, circuit=circuit, n_examples=8, **more)


@pytest.fixture(scope="module")
def walking():
    return run(WALKING)


@pytest.fixture(scope="module")
def doubling():
    return run(DOUBLING)


def cell(result, variable, layer, role, component=None):
    place = variable, layer, role, component or variable
    return next(one for one in result.cells if (one.variable, one.layer, one.role, one.component) == place)


def passes(result):
    """Where each variable passes, by variable and role: the first and the last layer, for every component the same."""
    found = {}
    for one in result.cells:
        assert one.accuracy.mean in (0, 1)
        if one.accuracy.mean:
            found.setdefault((one.variable, one.role), []).append(one.layer)
    return {place: (min(layers), max(layers)) for place, layers in found.items()}


def test_where_a_circuit_walks_each_symbol_goes_from_its_pair_to_the_query(walking):
    assert passes(walking) == {
        **{(f"x{k}", f"pair{k}.second"): (-1, k - 1) for k in (1, 2, 3)},
        **{(f"x{k}", "query"): (k, 3) for k in (1, 2, 3)},
    }


def test_where_a_circuit_doubles_x3_goes_through_pair_2(doubling):
    assert passes(doubling) == {
        ("x1", "pair1.second"): (-1, 0),
        ("x1", "query"): (1, 2),
        ("x2", "pair2.second"): (-1, 1),
        ("x2", "query"): (2, 2),
        ("x3", "pair3.second"): (-1, 0),
        ("x3", "pair2.second"): (1, 1),
        ("x3", "query"): (2, 2),
    }


def test_other_chains_keep_their_answers_and_nothing_passes_at_random_positions(doubling):
    assert {*doubling.unpatched_control.values()} == {1}
    assert {*doubling.unpatched.values()} == {0}
    assert all(one.control.mean == 1 for one in doubling.cells if one.control)
    random = [one for one in doubling.cells if one.role == RANDOM]
    assert len(random) == 6 * 4  # pairs of a variable and a component, layers
    assert not any(one.accuracy.mean for one in random)


def test_the_result_is_read_back_equal_and_the_table_and_the_figure_have_every_cell(doubling):
    assert InterchangeResult.model_validate_json(doubling.model_dump_json()) == doubling
    table = doubling.table()
    assert len(table) == len(doubling.cells) == 6 * 4 * 8  # pairs of a variable and a component, layers, roles
    assert table.query("variable == 'x3' and layer == 1 and role == 'pair2.second'").accuracy.tolist() == [1]
    assert sum(len(trace.x) for trace in doubling.figure().data) == len(table)


class Crossed(ChainTask):
    """The same task, but the first pair of a chain is said to be that of the next chain."""

    def examples(self, n, seed):
        examples = super().examples(n, seed)
        roles = examples.roles
        positions = roles.positions.clone()
        place = roles.names.index("pair1.second")
        positions[:, place] = positions[:, place].roll(1, dims=1)
        return Examples(examples.inputs, examples.targets, Roles(roles.names, positions, roles.groups))


def test_the_control_falls_where_an_intervention_changes_another_chain():
    result = interchange(compile_circuit(WALKING, TASK), Crossed(3, n_chains=4), n_examples=8)
    assert {*result.unpatched_control.values()} == {1}
    low = result.furthest
    assert (low.variable, low.layer, low.role) == ("x1", -1, "pair1.second")
    assert low.control.mean < 0.9


def test_a_symbol_that_stands_where_no_role_says_shows_at_the_random_positions():
    task = Crossed(1, n_chains=4)
    model = compile_circuit(walking_circuit(1), ChainTask(1, n_chains=4))
    result = interchange(model, task, n_examples=256)
    before = cell(result, "x1", -1, RANDOM)
    assert 0 < before.accuracy.mean < 0.1
    assert not before.accuracy.near(result.unpatched["x1"])


def test_an_accuracy_near_a_half_is_undecided(walking):
    one = cell(walking, "x1", -1, "pair1.second")
    near = one.model_copy(update={"accuracy": Mean(0.55, 0.02, 8)})
    assert (one.decision, near.decision) == ("holds", "undecided")


class ByOrder(ChainTask):
    """The same task, but the chain of the first pair counts as wrong once its neighbour has been exchanged."""

    def distances(self, outputs, examples):
        found = super().distances(outputs, examples)
        first = examples.roles.group("slot", "pair1.second") == 0
        moved = (found.argmin(dim=-1) != torch.arange(found.shape[-1])[:, None]).any(dim=(1, 2))
        lost = (first & moved[:, None])[:, :, None].expand(found.shape[:-1])
        return torch.where(lost[..., None], found.roll(1, dims=-1), found)


def test_a_control_that_falls_in_one_slot_is_split_by_slot():
    split = interchange(compile_circuit(WALKING, TASK), ByOrder(3, n_chains=4), n_examples=16).control_by_label
    assert (split.group, split.role) == ("slot", "pair1.second")
    assert [mean.mean for mean in split.means.values()] == [0, 1, 1, 1]


class OneAsked(ChainTask):
    """The same task, but only the first chain is asked for its answers."""

    def distances(self, outputs, examples):
        found = super().distances(outputs, examples)
        found[:, 1:] = torch.nan
        return found


def test_only_instances_that_are_asked_for_an_answer_count(walking):
    result = interchange(compile_circuit(WALKING, TASK), OneAsked(3, n_chains=4), n_examples=8)
    assert passes(result) == passes(walking)
    assert {*result.unpatched_control.values()} == {1}


def test_what_the_paths_of_a_random_circuit_decide_is_what_the_compiled_model_does():
    planted = plant(0)
    result = interchange(model_of(planted), planted.task, circuit=planted.circuit, n_examples=4)
    decided = [one for one in result.cells if one.predicted in (0, 1)]
    assert len(decided) > 0.3 * len(result.cells)
    assert all(one.accuracy.mean == one.predicted for one in decided)
    assert any(one.predicted for one in decided)


def test_a_wrong_circuit_disagrees():
    result = interchange(compile_circuit(DOUBLING, TASK, n_layers=4), TASK, circuit=WALKING, n_examples=4)
    assert sum(one.accuracy.mean != one.predicted for one in result.cells if one.predicted is not None) == 4


def test_what_arrives_by_two_ways_is_left_undecided():
    task = ChainTask(1, n_chains=4)
    twice = Circuit({"L0H0": {"pair1.second": "pair1.first"}, **{f"L{k}H0": {"query": "pair1.second"} for k in (1, 2)}})
    result = run(twice, task)
    assert [cell(result, "x1", layer, "query").predicted for layer in (1, 2)] == [0.5, 1]


def test_only_the_named_role_is_exchanged():
    examples = TASK.examples(2, seed=0)
    partner = torch.tensor([[1, 0, 3, 2]]).expand(2, -1)
    changed = exchange(examples.inputs, examples.roles["pair2.second"], partner) != examples.inputs
    assert torch.equal(changed.nonzero()[:, 1].reshape(2, 4), examples.roles["pair2.second"].sort(dim=1).values)


def test_an_odd_chain_out_keeps_its_symbol_and_two_chains_have_no_control():
    two = run(WALKING, ChainTask(3, n_chains=2))
    assert all(one.control is None for one in two.cells)
    assert all(one.accuracy.n_examples == 0 for one in two.cells if one.role == RANDOM)
    assert (two.furthest, two.control_by_label) == (None, None)
    odd = run(WALKING, ChainTask(3, n_chains=3))
    assert cell(odd, "x1", -1, "pair1.second").accuracy.mean == 1
    assert all(one.control.mean == 1 for one in odd.cells if one.control)


@pytest.mark.parametrize("head", ["L9H0", "L0H9"])
def test_a_circuit_that_does_not_fit_the_model_is_refused(head):
    wrong = Circuit({head: {"query": "pair1.second"}})
    assert_refused(f"{head} does not exist", interchange, compile_circuit(WALKING, TASK), TASK, circuit=wrong)


def test_a_task_with_one_instance_is_refused():
    one = ChainTask(1, n_chains=1)
    assert_refused("one instance", interchange, compile_circuit(walking_circuit(1), one), one)
