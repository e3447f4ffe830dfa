import json
from dataclasses import replace

import pytest
import torch

from benchmarks.recovery import plant
from circuits import BadInput, Circuit, Examples, Roles, compile_circuit
from circuits.interchange.interchange import interchange
from circuits.interchange.variables import exchange
from retrieval_interp import load
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit

JOINED = {f"pair{k}.second": f"pair{k}.first" for k in (1, 2, 3)}
WALKING = Circuit({"L0H0": JOINED, **{f"L{k}H0": {"query": f"pair{k}.second"} for k in (1, 2, 3)}})
DOUBLING = minimal_circuit(3)
PROBLEM = ChainTask(3, n_chains=4)


def run(circuit, task=PROBLEM, **more):
    return interchange(compile_circuit(circuit, task), task, circuit=circuit, n_examples=8, **more)


@pytest.fixture(scope="module")
def walking():
    return run(WALKING)


@pytest.fixture(scope="module")
def doubling():
    return run(DOUBLING)


def by_hand(result, ways):
    """1 where a variable passes by the ways {variable: {role: rows}}, else 0; NaN where it does not matter."""
    wanted = torch.zeros_like(result.accuracy[..., :-1])
    for index, variable in enumerate(result.variables):
        for role, rows in ways[variable.name].items():
            wanted[index, rows, result.roles.index(role)] = 1
        for place, component in enumerate(result.components):
            if component not in variable.components:
                wanted[index, :, :, place] = torch.nan
    return wanted


def test_where_a_circuit_walks_each_symbol_goes_from_its_pair_to_the_query(walking):
    wanted = by_hand(walking, {
        "x1": {"pair1.second": slice(0, 2), "query": slice(2, 5)},
        "x2": {"pair2.second": slice(0, 3), "query": slice(3, 5)},
        "x3": {"pair3.second": slice(0, 4), "query": slice(4, 5)},
    })  # fmt: skip
    assert torch.equal(walking.accuracy[..., :-1].nan_to_num(-1), wanted.nan_to_num(-1))


def test_where_a_circuit_doubles_x3_goes_through_pair_2(doubling):
    wanted = by_hand(doubling, {
        "x1": {"pair1.second": slice(0, 2), "query": slice(2, 4)},
        "x2": {"pair2.second": slice(0, 3), "query": slice(3, 4)},
        "x3": {"pair3.second": slice(0, 2), "pair2.second": slice(2, 3), "query": slice(3, 4)},
    })  # fmt: skip
    assert torch.equal(doubling.accuracy[..., :-1].nan_to_num(-1), wanted.nan_to_num(-1))


def test_the_other_chains_of_the_same_runs_keep_their_answers(doubling):
    assert torch.equal(doubling.own, torch.ones(3))
    assert torch.equal(doubling.unpatched, torch.zeros(3))
    assert doubling.control.nan_to_num(1).min() == 1


def test_at_random_positions_nothing_passes(walking, doubling):
    for result in (walking, doubling):
        assert result.random.shape == (3, len(result.accuracy[0]), 4)
        assert result.random.nan_to_num(0).max() == 0
        assert not result.random_above.any()
        assert "higher by more than three standard errors in 0 of" in " ".join(result.sentences())


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
    result = interchange(compile_circuit(WALKING, PROBLEM), Crossed(3, n_chains=4), n_examples=8)
    assert result.own.min() == 1
    assert result.control[0, 0, result.roles.index("pair1.second"), 0] < 0.9
    assert "x1 at pair1.second before layer 0" in result.sentences()[-1]


def test_a_symbol_that_stands_where_no_role_says_is_found_by_the_random_positions():
    task = Crossed(1, n_chains=4)
    model = compile_circuit(minimal_circuit(1), ChainTask(1, n_chains=4))
    result = interchange(model, task, n_examples=256)
    assert 0 < result.random[0, 0, 0] < 0.1
    assert result.random_above[0, 0, 0]
    assert result.to_json()["random_above"] == int(result.random_above.sum())


def test_an_accuracy_near_a_half_is_undecided(walking):
    accuracy, errors = walking.accuracy.clone(), walking.standard_error.clone()
    role = walking.roles.index("pair1.second")
    accuracy[0, 0, role, 0], errors[0, 0, role, 0] = 0.55, 0.02
    near = replace(walking, accuracy=accuracy, standard_error=errors)
    assert near.undecided.nonzero().tolist() == [[0, 0, role, 0]]
    assert not near.carries[0, 0, role, 0]
    both, either, undecided = walking.agreement
    assert near.agreement == (both - 1, either - 1, undecided + 1)
    assert "so undecided: x1 at pair1.second before layer 0 (x1)" in " ".join(near.sentences())


class ByOrder(ChainTask):
    """The same task, but the chain of the first pair counts as wrong once its neighbour has been exchanged."""

    def distances(self, outputs, examples):
        found = super().distances(outputs, examples)
        first = examples.roles.group("slot", "pair1.second") == 0
        moved = (found.argmin(dim=-1) != torch.arange(found.shape[-1])[:, None]).any(dim=(1, 2))
        lost = (first & moved[:, None])[:, :, None].expand(found.shape[:-1])
        return torch.where(lost[..., None], found.roll(1, dims=-1), found)


def test_a_control_that_falls_in_one_slot_is_split_by_slot():
    result = interchange(compile_circuit(WALKING, PROBLEM), ByOrder(3, n_chains=4), n_examples=16)
    split = result.control_by_label
    assert (split.group, split.role) == ("slot", "pair1.second")
    assert [mean.mean for mean in split.means.values()] == [0, 1, 1, 1]
    assert str(split) in result.sentences()[-1]


class OneAsked(ChainTask):
    """The same task, but only the first chain is asked for its answers."""

    def distances(self, outputs, examples):
        found = super().distances(outputs, examples)
        found[:, 1:] = torch.nan
        return found


def test_only_instances_that_are_asked_for_an_answer_count(walking):
    result = interchange(compile_circuit(WALKING, PROBLEM), OneAsked(3, n_chains=4), n_examples=8)
    assert torch.equal(result.accuracy.nan_to_num(-1), walking.accuracy.nan_to_num(-1))
    assert torch.equal(result.own, torch.ones(3))


@pytest.mark.slow
def test_in_the_equations_the_end_of_a_chain_is_set_by_its_last_line():
    model, task, _ = load("equations")
    result = interchange(model, task, n_examples=16)
    assert result.own.item() > 0.9
    assert result.unpatched.item() < 0.1
    last = f"pair{task.n_steps}.second"
    assert result.accuracy[-1, 0, result.roles.index(last), 0] > 0.9  # before layer 0: the input itself
    assert result.accuracy[-1, 0, result.roles.index("query"), 0] < 0.1
    assert not any(role.startswith("a.") for role in result.roles)  # the position is a chain's own already
    assert result.accuracy[0, -1, result.roles.index("answer"), 0] > 0.9
    assert result.control[0, -1, result.roles.index("answer"), 0].isnan()  # all chains share the position


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_what_the_paths_of_a_random_circuit_decide_is_what_the_compiled_model_does(seed):
    planted = plant(seed)
    size = {"n_layers": planted.n_layers, "n_heads": planted.n_heads}
    model = compile_circuit(planted.circuit, planted.task, distractors=planted.distractors, **size)
    result = interchange(model, planted.task, circuit=planted.circuit, n_examples=4)
    decided = ~result.accuracy[..., :-1].isnan() & (result.predicted != 0.5)
    assert decided.float().mean() > 0.3
    assert torch.equal(result.accuracy[..., :-1][decided], result.predicted[decided])
    both, either, _ = result.agreement
    assert both == either > 0


def test_a_wrong_circuit_disagrees():
    result = interchange(compile_circuit(DOUBLING, PROBLEM, n_layers=4), PROBLEM, circuit=WALKING, n_examples=4)
    both, either, undecided = result.agreement
    assert (both, either) == (28, 32)
    assert undecided == 0


def test_what_arrives_by_two_ways_is_left_undecided():
    task = ChainTask(1, n_chains=4)
    twice = Circuit({"L0H0": {"pair1.second": "pair1.first"}, **{f"L{k}H0": {"query": "pair1.second"} for k in (1, 2)}})
    result = run(twice, task)
    cells = result.predicted[0, :, :, 0]
    assert cells[2, result.roles.index("query")] == 0.5  # between the two
    assert cells[3, result.roles.index("query")] == 1


def test_the_sentences_tell_doubling_from_walking(walking, doubling):
    said = "x3 reaches the answer x3 through pair3.second (up to layer"
    assert f"{said} 2), query (from layer 3 on)." in walking.sentences()
    assert f"{said} 0), pair2.second (after layer 1), query (from layer 2 on)." in doubling.sentences()
    assert "both say so of 24; 0 more" in doubling.sentences()[-1]


def test_the_table_the_json_and_the_figure_have_every_cell(doubling):
    table = doubling.table()
    assert len(table) == 6 * 4 * 8  # pairs of a variable and a component, rows, roles and random positions
    assert table.layer.min() == -1
    assert table.query("variable == 'x3' and layer == 1 and role == 'pair2.second'").accuracy.tolist() == [1]
    plain = json.loads(json.dumps(doubling.to_json()))
    assert plain["accuracy"][2][2][plain["roles"].index("pair2.second")] == [None, None, 1.0, 1.0]
    figure = doubling.figure()
    assert sum(trace.type == "heatmap" for trace in figure.data) == 6


def test_only_the_named_role_is_exchanged():
    examples = PROBLEM.examples(2, seed=0)
    partner = torch.tensor([[1, 0, 3, 2]]).expand(2, -1)
    changed = exchange(examples.inputs, examples.roles["pair2.second"], partner) != examples.inputs
    assert torch.equal(changed.nonzero()[:, 1].reshape(2, 4), examples.roles["pair2.second"].sort(dim=1).values)


def test_an_odd_chain_out_keeps_its_symbol_and_two_chains_have_no_control():
    two = run(WALKING, ChainTask(3, n_chains=2))
    assert two.control.isnan().all()
    assert two.random.isnan().all()
    assert two.control_by_label is None
    odd = run(WALKING, ChainTask(3, n_chains=3))
    assert odd.accuracy[0, 0, odd.roles.index("pair1.second"), -1] == 1
    assert odd.control.nan_to_num(1).min() == 1


def test_a_task_with_one_instance_is_refused():
    one = ChainTask(1, n_chains=1)
    with pytest.raises(BadInput, match="one instance"):
        interchange(
            compile_circuit(Circuit({"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}}), one),
            one,
        )
