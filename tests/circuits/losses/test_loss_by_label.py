"""Losses split by label, in tasks whose losses are worked out by hand."""

import pytest
import torch

from circuits import Circuit, Roles
from circuits.ground_truth import compile_circuit
from circuits.losses.by_label import ByLabel, losses_by_label
from circuits.mechanisms import Identity
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder

TASKS = [
    RetrievalTask(2),
    RetrievalTask(2, step_order=StepOrder.FIRST_FIRST),
    ConditionalTask(2),
    EquationsTask(2),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_the_losses_of_the_instances_average_to_the_losses(task):
    examples = task.examples(8, 0)
    outputs = torch.randn(8, examples.inputs.shape[1], task.d_output, generator=torch.Generator().manual_seed(0))
    each = task.instance_losses(outputs, examples)
    assert each.shape == (8, examples.roles.positions.shape[2], len(task.loss_components))
    torch.testing.assert_close(each.nanmean(dim=1), task.losses(outputs, examples))


@pytest.mark.parametrize("task", TASKS[:2], ids=["last first", "first first"])
def test_a_wrong_answer_at_one_query_is_the_loss_of_the_chain_that_is_asked_there(task):
    examples = task.examples(8, 0)
    outputs = torch.zeros(8, task.n_positions, task.d_output)
    outputs[:, -task.n_chains :] = examples.targets.flatten(2)
    outputs[:, -1] += 1
    asked_last = examples.roles["query"] == task.n_positions - 1
    expected = asked_last[..., None].expand(-1, -1, 2).float()
    torch.testing.assert_close(task.instance_losses(outputs, examples), expected)


def test_only_the_chain_that_is_asked_about_has_a_loss_in_the_equations():
    examples = TASKS[-1].examples(4, 0)
    outputs = torch.zeros(4, examples.inputs.shape[1], TASKS[-1].d_output)
    each = TASKS[-1].instance_losses(outputs, examples)
    assert (~each.isnan()).tolist() == [[[True], *[[False]] * 3]] * 4


def test_the_role_with_the_highest_loss_of_a_label_is_chosen():
    roles = Roles(("low", "high"), torch.zeros(2, 2, 1).long(), {"slot": torch.zeros(2, 2, 1).long()})
    values = torch.tensor([[[0.0, 0.5], [0.8, 0.9]]] * 2)  # low differs more between its labels
    assert ByLabel.of(values, roles).role == "low"
    assert ByLabel.of(values, roles, worst=True).role == "high"


def test_every_circuit_has_its_own_split_and_a_compiled_one_has_none_that_is_high():
    task, circuit = ChainTask(2), minimal_circuit(2)
    *_, last = circuit.heads
    model, examples = compile_circuit(circuit, task), task.examples(32, 0)
    circuits = [Circuit(), circuit, circuit.with_head(last, Identity())]
    unablated, whole, broken = losses_by_label(model, task, examples, circuits)
    assert unablated.highest < 1e-6
    assert whole.highest < 1e-6
    assert broken.lowest > 0.1
