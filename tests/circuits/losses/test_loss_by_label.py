"""Losses split by label, in tasks whose losses are worked out by hand."""

import pytest
import torch

from circuits import Circuit, Roles
from circuits.ground_truth import compile_circuit
from circuits.losses.by_label import ByLabel
from circuits.losses.excess_by_label import excess_by_label
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms import Identity
from tests.handmade import ChainTask, walking_circuit


def test_the_role_with_the_highest_loss_of_a_label_is_chosen():
    roles = Roles(("low", "high"), torch.zeros(2, 2, 1).long(), {"slot": torch.zeros(2, 2, 1).long()})
    values = torch.tensor([[[0.0, 0.5], [0.8, 0.9]]] * 2)  # low differs more between its labels
    assert ByLabel.of(values, roles).role == "low"
    assert ByLabel.of(values, roles, worst=True).role == "high"


def test_every_circuit_has_its_own_split_and_a_compiled_one_has_none_that_is_high():
    task, circuit = ChainTask(2), walking_circuit(2)
    *_, last = circuit.heads
    test = SequentialTest(compile_circuit(circuit, task), task, task.examples(128, 0), 0.05)
    circuits = [Circuit(), circuit, circuit.with_head(last, Identity())]
    (unablated, _), (whole, low), (broken, high) = excess_by_label(test, circuits)
    assert unablated.highest < 1e-6
    assert (whole.highest, low) == (pytest.approx(0, abs=1e-6), "below")
    assert min(mean.mean for mean in broken.means.values()) == pytest.approx(
        0.5, abs=0.05
    )  # of two answers one is lost
    assert high == "above"


class Reversed(ChainTask):
    """The chain task with losses that fall where answers are wrong."""

    def instance_losses(self, outputs, examples):
        return 1 - super().instance_losses(outputs, examples)


def test_labels_far_below_the_models_own_loss_count_only_if_losses_are_two_sided():
    task, circuit = ChainTask(2), walking_circuit(2)
    *_, last = circuit.heads
    model, examples, broken = compile_circuit(circuit, task), task.examples(128, 0), circuit.with_head(last, Identity())
    test = SequentialTest(model, Reversed(2), examples, 0.05, scale=SequentialTest(model, task, examples, 0.05).scale)
    assert [low for _, low in excess_by_label(test, [circuit, broken])] == ["below", "below"]
    test.two_sided = True
    assert [low for _, low in excess_by_label(test, [circuit, broken])] == ["below", "above"]
