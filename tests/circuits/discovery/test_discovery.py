"""From a transformer to its circuit; the truth is written by hand, compiled, or was measured by hand."""

from dataclasses import replace

import pytest
import torch

from benchmarks.ground_truth.harder import divide, eliminate, soften
from benchmarks.recovery import plant, recover
from circuits import Circuit, Head, OneHot, Roles, attention, discover, validate
from circuits.averages import Averages, averages
from circuits.circuit import AttentionPath
from circuits.discovery.content_or_position import content_or_position
from circuits.discovery.discovery import Discovery
from circuits.discovery.fitting import Fitting
from circuits.discovery.idle import idle_heads
from circuits.discovery.observed_paths import ObservedPaths
from circuits.flow.fixed_paths import fixed_paths
from circuits.ground_truth import compile_circuit
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms import Previous
from circuits.model import layers
from circuits.settings import deciding
from tests.handmade import ChainTask, doubling_circuit
from tests.refusals import assert_refused
from tests.repeated import RepeatedTokens, trained_model


@pytest.fixture(scope="module")
def compiled():
    task = ChainTask(2)
    return compile_circuit(doubling_circuit(), task), task


def test_the_average_pattern_is_that_of_many_examples(random_model, chains):
    means = averages(random_model, chains, seed=5).patterns
    assert set(means) == {Head(layer, head) for layer in range(3) for head in range(2)}
    weights = means[Head(2, 1)].weights
    assert torch.allclose(weights.sum(dim=1), torch.ones(len(weights)), atol=1e-5)
    assert (weights - Averages.of(random_model, chains.examples(2048, seed=77)).attention[0, 2, 1]).abs().max() < 0.05


def test_heads_whose_outputs_can_be_averaged_are_idle_and_positional_heads_are_not():
    """L0H0 attends by position: its average pattern does all its work, its average output none."""
    task = ChainTask(2)
    model = compile_circuit(doubling_circuit(), task, n_layers=4, n_heads=2)
    test = SequentialTest(model, task, task.examples(128, seed=1), 0.05, searching=True)
    every = [Head(layer, index) for layer in range(4) for index in range(2)]
    idle = idle_heads(test, every)
    assert {*every} - {*idle.heads} == {*doubling_circuit().heads}
    assert {own.name for own in idle.heads.values()} == {"idle"}


def test_heads_that_join_neighbours_are_positional_and_those_that_compare_symbols_look_at_content(compiled):
    model, task = compiled
    test = SequentialTest(model, task, task.examples(128, seed=1), 0.05)
    found = content_or_position(test, averages(model, task).patterns, Circuit())
    assert found.content == (Head(1, 0), Head(2, 0))
    assert found.positional == (Head(0, 0),)
    assert found.alone[Head(0, 0)].excess < 0.05 < found.alone[Head(1, 0)].excess
    assert found.together.decision == "below"
    assert [found.looks_at(Head(layer, 0)) for layer in range(3)] == ["position", "content", "content"]
    assert found.unablated.mean < 0.001


def test_the_paths_of_a_compiled_transformer_come_out_on_every_chain(compiled):
    model, task = compiled
    found = discover(model, task, n_examples=128)
    assert found.found
    one_hots = {head: own for head, own in found.circuit.heads.items() if isinstance(own, OneHot)}
    assert {head: own.paths for head, own in one_hots.items()} == {
        head: own.paths for head, own in doubling_circuit().heads.items()
    }
    assert all(own.where == () for own in one_hots.values())


def test_discovery_counts_the_sequences_whose_attention_it_reads(model, task, monkeypatch):
    read = []

    def counted(model, examples):
        read.append(len(examples))
        return layers.attention(model, examples)

    monkeypatch.setattr("circuits.averages.attention", counted)
    monkeypatch.setattr(attention, "attention_patterns", lambda *asked: ((a, b) for a, b, _ in counted(*asked)))
    assert discover(model, task, n_examples=32).n_readings == sum(read)
    assert {*read} == {32}  # no more than the choices get


def test_changes_that_the_examples_did_not_decide_are_counted(model, task):
    found = discover(model, task, n_examples=128)
    assert found.n_undecided == 0
    trial = found.trials[0]
    open_ = trial.model_copy(update={"tested": replace(trial.tested, decision="undecided"), "taken": False})
    trials = (open_, open_.model_copy(update={"taken": True}), trial, open_)
    assert found.model_copy(update={"trials": trials}).n_undecided == 2


def test_the_handmade_circuit_comes_out(model, task):
    found = discover(model, task, n_examples=128)
    assert found.found
    # Nobody would miss L0H0 while L1H0 is told where to look; left to itself it needs it.
    assert found.circuit == Circuit({Head(0, 0): Previous(), Head(1, 0): OneHot({"query": "pair1.second"})})


def test_the_same_seed_gives_the_same_discovery_and_its_json_is_read_back(model, task):
    both = [discover(model, task, n_examples=128, seed=3) for _ in range(2)]
    assert both[0] == both[1]
    assert Discovery.model_validate_json(both[0].model_dump_json()) == both[0]


class FirstsOnly:
    """One pair and its query; the answer stands at the second member of the pair, which has no name."""

    roles = ("query", "pair1.first")

    def __init__(self):
        self.whole = ChainTask(1, n_chains=1)
        self.loss_components, self.output_roles, self.losses = ("x1",), ("query",), self.whole.losses

    def examples(self, n, seed):
        examples = self.whole.examples(n, seed)
        named = [examples.roles.names.index(role) for role in self.roles]
        groups = {name: own[:, named] for name, own in examples.roles.groups.items()}
        return replace(examples, roles=Roles(self.roles, examples.roles.positions[:, named], groups))


@pytest.mark.parametrize("named", [True, False])
def test_the_paper_s_mechanisms_alone_are_searched_and_none_may_be_found(named):
    """No path can lead to a position without a name; an average pattern does."""
    planted = Circuit({"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}})
    model = compile_circuit(planted, ChainTask(1, n_chains=1))
    task = ChainTask(1, n_chains=1) if named else FirstsOnly()
    literal = discover(model, task, n_examples=256, protocol="paper")
    assert literal.found == named
    if named:
        assert literal.circuit.heads[Head(1, 0)] == planted.heads[Head(1, 0)]
        assert validate(model, task, literal.circuit, n_examples=256, seed=1).by("paper").decision == "holds"
    else:
        assert not any(path.head == (1, 0) for path in literal.circuit.paths)
        assert discover(model, task, n_examples=256).found


def test_the_numbers_that_decide_can_be_given(model, task):
    with deciding(attended=1.0, likely=1.0):  # attention shows no path
        found = discover(model, task, n_examples=128)
    assert not any(path.joins_roles for path in found.circuit.paths)
    assert not found.found


@pytest.mark.slow
# One step or two, of one head or two in a layer; paths that only guide others, in heads that have other paths too.
@pytest.mark.parametrize("seed", [2, 4, 8])
def test_a_planted_circuit_is_recovered_exactly(seed):
    row = recover(plant(seed))
    assert (row["precision"], row["recall"]) == (1.0, 1.0), row


@pytest.mark.slow
def test_in_a_trained_token_model_the_previous_token_head_and_the_induction_head_come_out():
    torch.manual_seed(0)
    model, task = trained_model(), RepeatedTokens()
    found = discover(model, task)
    lowest = fixed_paths(found.circuit, task.examples(256, seed=1).roles)
    assert {(path.head.layer, path.source, path.target) for path in lowest} == {(0, "next", "earlier")}
    assert {(path.head.layer, path.source, path.target) for path in found.circuit.paths} == {(1, "again", "next")}
    assert validate(model, task, found.circuit, n_examples=256, seed=1).decision == "holds"


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan"), float("inf")])
def test_a_threshold_that_is_none_is_refused(model, task, threshold):
    assert_refused("expected a number above 0", discover, model, task, threshold=threshold)


def test_attention_is_split_by_the_label_of_the_attended_chain(random_model, chains):
    examples = chains.examples(64, seed=1)
    by_slot = attention.role_attention(random_model, examples, "slot")
    assert by_slot.shape[-1] == chains.n_chains
    assert torch.allclose(by_slot.mean(dim=-1), attention.role_attention(random_model, examples), atol=1e-5)
    slots = examples.roles.group("slot", "pair1.second")
    assert sorted(slots[0].tolist()) == [0, 1]
    first = chains.n_chains * 2  # pair 2 stands before pair 1
    assert torch.equal(examples.roles["pair1.second"], first + 2 * slots + 1)


def test_a_row_that_became_simpler_can_stay_while_another_path_goes(compiled):
    model, task = compiled
    means = averages(model, task).patterns
    seen = ObservedPaths(model, task.examples(64, 0), means)
    head, rows = Head(2, 0), [("query", "identity"), ("pair1.second", "pair1.first")]
    fitting = Fitting(SequentialTest(model, task, task.examples(32, 1), 0.05), seen, looking=[head])
    fewer = {m for _, m in fitting._fewer(Circuit({head: OneHot(rows, means[head])}))}
    assert fewer == {OneHot([row], means[head]) for row in rows}


def test_a_content_head_with_less_than_half_of_its_attention_on_its_target_still_shows_its_path():
    task, low, high = ChainTask(1, n_chains=4), Head(0, 0), Head(1, 0)
    circuit = Circuit({low: OneHot({"pair1.second": "pair1.first"}), high: OneHot({"query": "pair1.second"})})
    model = compile_circuit(circuit, task)
    soften(model, [high], 0.42, task.n_chains, leak=True)
    read = model, task.examples(64, 0), averages(model, task).patterns
    assert not ObservedPaths(*read).rows[high]
    assert [*ObservedPaths(*read, likely=[high]).rows[high]] == [("query", "pair1.second")]
    found = discover(model, task, n_examples=128)
    assert found.found
    assert ("query", "pair1.second") in found.circuit.heads[high].rows


def test_a_path_with_less_than_half_of_the_attention_shows_beside_a_clear_one_from_another_role():
    task, head = ChainTask(2, n_chains=4), Head(1, 0)
    rows = {"pair2.second": "pair2.first", "query": "pair1.second"}  # the first by position, the second by symbols
    others = {Head(0, 0): {"pair1.second": "pair1.first"}, Head(2, 0): {"query": "pair2.second"}}
    model = compile_circuit(Circuit({**others, head: rows}), task)
    soften(model, [head], 0.42, task.n_chains, leak=True)
    read = model, task.examples(64, 0), averages(model, task).patterns
    assert [*ObservedPaths(*read).rows[head]] == [("pair2.second", "pair2.first")]
    assert {*ObservedPaths(*read, likely=[head]).rows[head]} == {*rows.items()}


def test_a_head_that_always_attends_to_one_position_gets_it_as_its_row_and_not_the_role_that_stands_there_at_times():
    task, head = ChainTask(1), Head(1, 1)
    path = AttentionPath(Head(1, 0), "query", "pair1.second")
    whole = Circuit({Head(0, 0): {"pair1.second": "pair1.first"}, path.head: {"query": "pair1.second"}})
    found_in_two = divide(whole, path, head, [1, 5], task).without_heads([head])
    model = eliminate(compile_circuit(found_in_two, task, n_heads=2), task, {head: {"query": 3}})
    read = model, task.examples(64, 0), averages(model, task).patterns
    seen = ObservedPaths(*read)
    assert seen.rows[head]["query", "pair1.second"].condition is not None
    assert seen.positions(head) == {"query": "position 3"}
    assert seen.positions(path.head) == {}
    assert discover(model, task, n_examples=128).circuit.heads[head].rows == (("query", "position 3"),)
