import pytest
import torch

from circuits import BadInput
from retrieval_interp import RetrievalTask
from retrieval_interp.tasks.next_symbol import NextSymbolTask
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.tasks.vectors import VectorBatch

TASK = NextSymbolTask(n_steps=3, n_chains=2)


def test_the_second_members_of_all_pairs_but_the_last_are_asked_for_the_next_symbol():
    assert TASK.trained_components == ("x1", "x2", "x3", "x2 at pair1.second", "x3 at pair2.second")


def test_the_losses_at_pairs_read_the_next_symbol_in_the_first_numbers():
    # chain c has the symbols 10c + 0, 10c + 1, 10c + 2, 10c + 3, each four times
    symbols = (10.0 * torch.arange(2)[:, None] + torch.arange(4))[None, :, :, None].expand(1, 2, 4, 4)
    examples = TASK.assemble(VectorBatch(symbols.contiguous(), torch.tensor([[[1, 0], [0, 1], [1, 0], [0, 1]]])))
    outputs = torch.zeros(1, TASK.n_positions, TASK.d_output)
    for chain in range(2):
        for k in (1, 2):
            outputs[0, examples.roles[f"pair{k}.second"][0, chain], :4] = 10.0 * chain + k + 1
    assert TASK.training_losses(outputs, examples)[0, 3:].tolist() == [0.0, 0.0]
    outputs[0, examples.roles["pair2.second"][0, 1], 0] += 2.0  # one of 2 chains and 4 numbers
    assert TASK.training_losses(outputs, examples)[0, 3:].tolist() == [0.0, 0.5]
    assert torch.equal(TASK.training_losses(outputs, examples)[:, :3], TASK.losses(outputs, examples))


@pytest.mark.parametrize(
    "task",
    [
        RetrievalTask(1),
        RetrievalTask(3, implicit_curriculum=False),
        RetrievalTask(3, left_out=1),
        RetrievalTask(3, step_order=StepOrder.FIRST_FIRST),
    ],
)
def test_a_task_whose_pairs_cannot_know_the_next_symbol_is_refused(task):
    with pytest.raises(BadInput, match="expected"):
        NextSymbolTask.of(task)
