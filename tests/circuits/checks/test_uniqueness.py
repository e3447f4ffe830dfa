"""Other targets of paths that do as well."""

from dataclasses import replace

import pytest
import torch

from circuits import Circuit, Head, Roles, validate
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import minimality
from circuits.checks.uniqueness import _holding_the_same, uniqueness
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit
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
    assert found.as_good == ()
    assert found.note(1.9).endswith("1; none does as well.")
    assert f"still low: {FETCH} (pair1.first: 2.0000)" in found.note(2.1)


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
    assert report.decision == "holds"
    assert report.uniqueness.as_good == ((FETCH, "twin"),)
    assert f"these may do as well: {FETCH} (twin)" in report.notes[-1]


def test_roles_that_hold_the_same_symbol_by_the_layout_are_one_target():
    """x1 stands in pair1.second and pair2.first; whether a query takes it from one or the other, it has x1."""
    task = ChainTask(2, n_chains=2)
    circuit = Circuit({"L0H0": {"pair2.second": "pair2.first"}, "L1H0": {"query": "pair2.first"}})
    tried = Experiment(compile_circuit(walking_circuit(2), task), task, circuit, n_examples=8)
    assert _holding_the_same(tried, "pair2.first") == ("pair1.second",)
    assert _holding_the_same(tried, "pair2.second") == ()
