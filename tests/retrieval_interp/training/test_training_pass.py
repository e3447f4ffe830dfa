import pytest
import torch

from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.training.training_pass import training_pass

SHAPES = [Architecture(1, 2, 16, 8), Architecture(3, 2, 16, 8), Architecture(2, 4, 16, 4, mlp=False)]


class FirstToo(RetrievalTask):
    """A task of somebody else, whose training losses read the first position, too."""

    def training_losses(self, outputs, examples):
        return torch.cat([self.losses(outputs, examples), outputs[:, :1].square().mean(dim=2)], dim=1)


TASKS = [
    *(RetrievalTask(2, 3, step_order=order) for order in StepOrder),
    RetrievalTask(3, 2, implicit_curriculum=False),
    *(FirstToo(2, 3), ConditionalTask()),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_losses_and_gradients_are_those_of_the_transformers_own_pass(task, shape):
    model, examples = VectorTransformer(shape.config(task), seed=1), task.examples(8, seed=0)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    found = []
    for outputs in (model(examples.inputs), training_pass(model, examples.inputs, task.trained_positions)):
        losses = task.training_losses(outputs, examples)
        found.append((losses, *torch.autograd.grad(losses.mean(), trained)))
    for own, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, own)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_outputs_at_some_positions_are_those_of_the_whole_sequence(shape):
    task = RetrievalTask(2, 3)
    model, inputs = VectorTransformer(shape.config(task), seed=1), task.examples(2, seed=0).inputs
    whole = training_pass(model, inputs)
    assert whole.shape[1] == 15
    torch.testing.assert_close(training_pass(model, inputs, slice(-3, None)), whole[:, -3:])
