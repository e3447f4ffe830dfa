import pytest
import torch

from circuits import BadInput
from retrieval_interp.tasks.thinking import ThinkingTask

TASK = ThinkingTask(n_steps=3, n_chains=2, n_dims=2, n_thoughts=2)


def test_every_step_is_asked_for_one_symbol_less():
    asked = ("x1", "x2", "x3", "x2 at pair1.second", "x3 at pair2.second", "x2 after 1", "x3 after 1", "x3 after 2")
    assert TASK.trained_components == asked
    assert ThinkingTask(n_steps=3).trained_components == asked[:3] + asked[3:5]


def test_the_first_numbers_are_the_next_symbol_after_every_step():
    examples = TASK.examples(5, seed=0)
    outputs = torch.zeros(5, TASK.n_positions + 2 * TASK.n_chains, TASK.d_output)
    outputs[:, -4:-2, :4] = examples.targets[:, :, 1:].flatten(2)  # x2 and x3 after one step
    outputs[:, -2:, :2] = examples.targets[:, :, 2]  # x3 after two steps
    losses = TASK.training_losses(outputs, examples)
    assert losses.shape == (5, 8)
    assert (losses[:, :5] > 0).all()
    assert not losses[:, 5:].any()


def test_there_are_fewer_thoughts_than_hops():
    with pytest.raises(BadInput, match="n_thoughts"):
        ThinkingTask(n_steps=3, n_thoughts=3)
