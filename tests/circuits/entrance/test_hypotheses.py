"""Heads, labels and names of any library end in the right number, or in one line."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch

import circuits
from circuits import Circuit, Examples, Head, OneHot, Roles, evaluate, run_ablated
from circuits.mechanisms import Condition, Identity
from tests.circuits.entrance.small import CIRCUIT, END, LENGTH, SOURCE, VOCABULARY, Copying, plain_losses, uniform
from tests.refusals import assert_refused

PLACES = {"source": torch.full((6,), SOURCE), "end": torch.full((6,), END)}


@pytest.mark.parametrize(
    "picked",
    [
        [(torch.tensor(0), torch.tensor(1)), (torch.tensor(1), torch.tensor(2))],
        [tuple(row) for row in np.array([[0, 1], [1, 2]])],
        [*torch.tensor([[0, 1], [1, 2]])],
        ["L0H1", (1, np.int32(2))],
    ],
    ids=["tensors", "numpy", "rows of a tensor", "mixed"],
)
def test_heads_given_as_integers_of_any_library_are_ablated(model, examples, picked, tmp_path):
    task, circuit = Copying(), Circuit({Head.of(head): "uniform" for head in picked})
    expected = plain_losses(model, task, examples, {(0, 1): uniform(), (1, 2): uniform()})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)
    assert torch.allclose(task.losses(run_ablated(model, circuit, examples), examples), expected, atol=1e-5)
    assert circuit.digest == Circuit({"L0H1": "uniform", "L1H2": "uniform"}).digest
    circuits.save_circuit(circuit, tmp_path / "c.yaml")
    assert circuits.load_circuit(tmp_path / "c.yaml") == circuit


@pytest.mark.parametrize("head", [(0.0, 1.0), ("0", "1"), (True, 0), (torch.tensor(0.5), 0), (np.True_, 1), (0,), 3])
def test_what_is_no_pair_of_integers_is_no_head(head):
    assert_refused(r"head|layer", Circuit, {head: "uniform"})


def test_a_head_that_is_given_twice_is_refused():
    assert_refused("L0H1 is given twice", Circuit, {"L0H1": "uniform", (0, 1): "identity"})


def test_every_method_of_a_circuit_takes_heads_as_integers_of_any_library():
    base, picked = Circuit({f"L0H{head}": "uniform" for head in range(4)}), torch.tensor([[0, 1], [0, 2]])
    assert [*base.without_heads(picked).heads] == [Head(0, 0), Head(0, 3)]
    assert base.with_head(tuple(picked[0]), Identity()).heads[Head(0, 1)] == Identity()
    assert len(base.with_head(tuple(picked[0]), Identity()).heads) == 4
    assert Head.of(picked[0]) in base.heads
    assert base.layer(torch.tensor(0)) == base.layer(0)


@pytest.mark.parametrize(
    "labels", [(0, 1), [0, 1], {0, 1}, range(2), np.array([0, 1]), torch.tensor([0, 1]), (np.int64(0), torch.tensor(1))]
)
def test_labels_of_a_condition_are_integers_of_any_library(model, labels, tmp_path):
    task, examples = Copying(), Copying().examples(60, 0)
    row = ("end", "source")
    circuit = Circuit({"L1H0": OneHot([row], "uniform", {row: Condition("kind", "source", labels)})})
    pattern, holds = uniform().repeat(60, 1, 1), torch.arange(60) % 3 < 2
    pattern[holds, END] = torch.nn.functional.one_hot(torch.tensor(SOURCE), LENGTH).float()
    expected = plain_losses(model, task, examples, {(1, 0): pattern})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)
    circuits.save_circuit(circuit, tmp_path / "c.yaml")
    assert circuits.load_circuit(tmp_path / "c.yaml") == circuit


@pytest.mark.parametrize("labels", [(0.0,), ("0",), (False,), (-1,), (), 1.5])
def test_labels_that_are_no_numbers_from_zero_are_refused(labels):
    assert_refused("label", Condition, "kind", "source", labels)


@pytest.mark.parametrize("order", [("source", "end"), ("end", "source")])
def test_labels_belong_to_roles_by_name(order):
    kinds = {"source": torch.arange(6) % 2, "end": torch.zeros(6, dtype=torch.long)}
    roles = Roles.of(PLACES, {"kind": {name: kinds[name] for name in order}})
    assert roles.group("kind", "source")[:, 0].tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("names", [("source",), ("source", "ends"), ("source", "end", "more")])
def test_a_group_with_other_roles_is_refused(names):
    kinds = dict.fromkeys(names, torch.zeros(6, dtype=torch.long))
    assert_refused("group 'kind' has the roles", Roles.of, PLACES, {"kind": kinds})


@pytest.mark.parametrize("given", [torch.full((6,), 3.0), torch.ones(6, dtype=torch.bool)])
def test_positions_and_labels_are_whole_numbers(given):
    assert_refused("expected whole numbers", Roles.of, {"source": given})
    assert_refused("expected whole numbers", Roles.of, {"source": torch.full((6,), 3)}, {"kind": {"source": given}})


WORDS = ["previous", "identity", "uniform", "zero", "elsewhere", "mechanism", "to", "at", "*", "position 3", "position"]


@pytest.mark.parametrize("name", [*WORDS, "", " source", "two\nlines"])
def test_names_that_mean_something_else_in_a_circuit_are_refused_where_roles_are_made(name):
    assert_refused("called", Roles.of, {name: torch.zeros(2, dtype=torch.long)})
    labels = {"source": torch.zeros(2, dtype=torch.long)}
    assert_refused("called", Roles.of, labels, {name: labels})
    assert_refused("called", OneHot, [(name, "source")])


def test_two_instances_at_one_position_cannot_have_two_targets(model):
    places = {"key": torch.tensor([[1, 4]] * 8), "asked": torch.tensor([[9, 9]] * 8)}
    kinds = {name: torch.tensor([[0, 1]] * 8) for name in places}
    tokens = torch.randint(3, VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(0))
    examples = Examples(tokens, tokens[:, 1], Roles.of(places, {"one": kinds}))
    task, row = Copying(("key", "asked"), output_roles=("asked",)), ("asked", "key")
    both = Circuit({"L1H0": {"asked": "key"}})
    assert_refused("the row of 'asked' differs from another row", evaluate, model, task, examples, [both])
    circuit = Circuit({"L1H0": OneHot([row], "uniform", {row: Condition("one", "key", 1)})})
    pattern = uniform()
    pattern[END] = torch.nn.functional.one_hot(torch.tensor(4), LENGTH).float()
    expected = plain_losses(model, task, examples, {(1, 0): pattern})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)


def in_another_process(circuit):
    """What a worker sees: it has other hashes, and no annotations are checked there, as they are here."""
    same = Circuit({"L1H0": {"end": "source"}, "L0H0": "uniform"})
    examples = Examples(np.array([[3, 4], [5, 6]]), np.array([3, 5]), Roles.of({"end": np.array([1, 1])}))
    assert_refused("inputs of examples: got list", Examples, [[3, 4], [5, 6]], examples.targets, examples.roles)
    return hash("a text"), {same: "there"}[circuit], examples.inputs.tolist()


def test_another_process_finds_a_circuit_in_a_dict_and_takes_arrays_as_inputs(monkeypatch):
    hash(CIRCUIT)  # hashes differ from process to process
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as workers:
        text, found, inputs = workers.submit(in_another_process, CIRCUIT).result()
    assert text != hash("a text")
    assert (found, inputs) == ("there", [[3, 4], [5, 6]])


def test_roles_and_inputs_of_a_wrong_shape_are_refused_and_so_are_two_rows_of_one_position(model, examples):
    valid, none = torch.ones(1, 4), torch.zeros(0).long()
    assert_refused("at position 9; valid has 4 positions", Roles.of, {"a": torch.tensor([9])}, valid=valid)
    assert_refused(r"shape \[\]", Roles.of, {"a": torch.tensor(3)}, valid=valid)
    assert_refused("0 examples", Roles.of, {"a": none}, {"kind": {"a": none}})
    assert_refused(r"the shape \[3\]; expected \[batch, pos", Examples, torch.zeros(3), torch.zeros(3), examples.roles)
    assert_refused("averages=circuits.averages", run_ablated, model, Circuit({"L0H0": "idle"}), examples)
    twice = Copying(roles=("source", "end", "last"))
    twice.examples = lambda n, seed: two_names(Copying().examples(n, seed))
    both = Circuit({"L1H0": {"end": "source", "last": "source"}})
    assert_refused("'end' and 'last', which always stand", circuits.validate, model, twice, both, n_examples=32)


def two_names(given):
    places = {name: given.roles[name] for name in ("source", "end")}
    return Examples(given.inputs, given.targets, Roles.of(places | {"last": places["end"]}))


def test_a_path_is_against_the_mask_only_on_instances_on_which_it_holds():
    roles, ends = Roles.of({"a": torch.tensor([3, 3]), "b": torch.tensor([1, 5])}), ("a", "b")
    Circuit({"L0H0": OneHot([ends], where={ends: Condition("position", "b", 1)})}).check(roles, 1, 1)
    assert_refused("against the causal mask", Circuit({"L0H0": dict([ends])}).check, roles, 1, 1)
