"""The losses of single instances, in the tasks of the paper and those beside it."""

import pytest
import torch

from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder

TASKS = [RetrievalTask(2), RetrievalTask(2, step_order=StepOrder.FIRST_FIRST), ConditionalTask(2), EquationsTask(2)]


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
    assert (~TASKS[-1].instance_losses(outputs, examples).isnan()).tolist() == [[[True], *[[False]] * 3]] * 4
