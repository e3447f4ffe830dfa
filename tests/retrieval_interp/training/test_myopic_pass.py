import pytest
import torch

from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.models.presets import Architecture
from retrieval_interp.training.myopic_pass import myopic_pass
from retrieval_interp.training.training_pass import training_pass

TASK = RetrievalTask(n_steps=2, n_chains=2)
READING = pytest.mark.parametrize("train_reading", [True, False])


@pytest.fixture(scope="module")
def model():
    return VectorTransformer(Architecture(n_layers=3, n_heads=2, d_model=16, d_head=8).config(TASK), seed=1)


@READING
def test_the_outputs_are_those_of_the_ordinary_pass(model, train_reading):
    inputs = TASK.examples(4, seed=0).inputs
    torch.testing.assert_close(myopic_pass(model, inputs, train_reading=train_reading), training_pass(model, inputs))


@READING
def test_a_loss_has_a_gradient_to_its_own_position_only(model, train_reading):
    inputs = TASK.examples(4, seed=0).inputs.requires_grad_()
    for position in (0, 4, 9):
        outputs = myopic_pass(model, inputs, train_reading=train_reading)[:, position].square().sum()
        (gradient,) = torch.autograd.grad(outputs, inputs)
        reached = gradient.abs().sum(dim=(0, 2)).nonzero().flatten().tolist()
        assert reached == [position]
    (ordinary,) = torch.autograd.grad(training_pass(model, inputs)[:, 9].square().sum(), inputs)
    assert (ordinary.abs().sum(dim=(0, 2)) > 0).all()


@READING
def test_the_gradient_at_the_first_position_is_the_ordinary_one_because_it_reads_nothing_else(model, train_reading):
    inputs = TASK.examples(4, seed=0).inputs
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    own = torch.autograd.grad(myopic_pass(model, inputs, train_reading=train_reading)[:, 0].sum(), trained)
    plain = torch.autograd.grad(training_pass(model, inputs)[:, 0].sum(), trained)
    for one, other in zip(own, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_only_if_reading_is_trained_do_keys_and_values_of_other_positions_train_their_weights(model):
    inputs = TASK.examples(4, seed=0).inputs
    itself = torch.eye(10, dtype=torch.bool).expand(4, 2, -1, -1).clone()
    itself[..., 0, 0] = False  # the first position has nothing else
    closed = dict.fromkeys(range(3), itself)

    def values_trained(train_reading):
        outputs = myopic_pass(model, inputs, train_reading=train_reading, closed=closed)[:, -1].square().sum()
        model.zero_grad()
        outputs.backward()
        return bool(model.blocks[2].attn.W_V.grad.any()), bool(model.blocks[2].attn.W_Q.grad.any())

    assert values_trained(True) == (True, True)
    assert values_trained(False) == (False, True)
    model.zero_grad()
