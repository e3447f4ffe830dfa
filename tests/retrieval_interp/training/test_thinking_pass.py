import pytest
import torch

from circuits import BadInput
from retrieval_interp import VectorTransformer
from retrieval_interp.models.build import with_context
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.tasks.thinking import PAUSES, THOUGHTS, WORDS, ThinkingTask
from retrieval_interp.training.thinking_pass import thinking_pass

TASK = ThinkingTask(n_steps=3, n_chains=2, n_thoughts=2)
CHOSEN = Preset(TASK, Architecture(n_layers=2, n_heads=2, d_model=16, d_head=8), Recipe(1, 1, 1))
N, K, END = TASK.n_chains, TASK.n_dims, TASK.n_positions


@pytest.fixture(scope="module")
def model():
    return VectorTransformer(CHOSEN.config, 0)


@pytest.fixture(scope="module")
def examples():
    return TASK.examples(4, seed=0)


def longer(examples, symbols):
    """The inputs with positions for the thoughts that hold these symbols."""
    codes = TASK.position_codes(END + 2 * N)[END:].expand(len(examples), -1, -1)
    return torch.cat([examples.inputs, torch.cat([symbols.transpose(1, 2).flatten(1, 2), codes], dim=-1)], dim=1)


@pytest.mark.parametrize("reads", [WORDS, PAUSES])
def test_words_and_pauses_are_the_inputs_of_an_ordinary_pass(model, examples, reads):
    words = examples.targets[:, :, :2]
    symbols = words if reads == WORDS else torch.zeros_like(words)
    expected = with_context(model, END + 2 * N)(longer(examples, symbols))
    torch.testing.assert_close(thinking_pass(model, TASK, examples.inputs, reads, words), expected)


def test_what_cannot_be_read_is_refused(model, examples):
    with pytest.raises(BadInput, match="reads is 'prose'; expected one of words, thoughts, pauses"):
        thinking_pass(model, TASK, examples.inputs, "prose")


def test_a_model_reads_the_words_that_it_wrote(model, examples):
    own = thinking_pass(model, TASK, examples.inputs, WORDS)
    written = torch.stack([own[:, END - N :][:, s * N : (s + 1) * N, :K] for s in range(2)], dim=2)
    torch.testing.assert_close(thinking_pass(model, TASK, examples.inputs, WORDS, written), own)


def test_thoughts_leave_the_queries_alone_and_change_what_comes_after(model, examples):
    thinking, pausing = (thinking_pass(model, TASK, examples.inputs, reads) for reads in (THOUGHTS, PAUSES))
    torch.testing.assert_close(thinking[:, :END], pausing[:, :END])
    assert (thinking - pausing)[:, END:].abs().amin(dim=(0, 2)).gt(0).all()


def test_a_thought_alone_brings_the_query_and_its_gradient_to_the_last_step(examples):
    deaf = VectorTransformer(CHOSEN.config, 0)
    for block in deaf.blocks:
        block.attn.W_O.data.zero_()  # no position reads another one
    gradients = {}
    for reads in (THOUGHTS, PAUSES):
        inputs = examples.inputs.clone().requires_grad_()
        thinking_pass(deaf, TASK, inputs, reads)[:, -N:].square().sum().backward()
        gradients[reads] = inputs.grad
    assert not gradients[PAUSES].any()
    assert gradients[THOUGHTS][:, -N:].abs().amin(dim=(0, 2)).gt(0).all()
    assert not gradients[THOUGHTS][:, :-N].any()
