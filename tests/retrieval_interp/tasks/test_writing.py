import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, Head, OneHot, Previous
from circuits.flow.flow_check import flow_check
from retrieval_interp.tasks.writing import WritingTask, write, written_losses

tasks = st.builds(WritingTask, n_steps=st.integers(1, 5), n_chains=st.integers(1, 4))


def looked_up(task, inputs):
    """The answer that stands in the prompt itself: of every position the symbol beside its own, in the last pair."""
    symbols = inputs[..., : task.n_dims]
    pairs = symbols[:, : 2 * task.n_chains * task.n_steps].unflatten(1, (-1, 2))
    same = (symbols[:, :, None] - pairs[:, None, :, 0]).square().sum(dim=-1)
    found = pairs[torch.arange(len(inputs))[:, None], same.argmin(dim=-1), 1]
    return found


@given(tasks, st.integers(0, 1000))
def test_every_answer_is_one_hop_away_from_what_stands_where_it_is_asked(task, seed):
    examples = task.examples(4, seed)
    assert task.losses(looked_up(task, examples.inputs), examples).max() == 0


@given(tasks, st.integers(0, 1000))
def test_what_stands_written_is_what_was_to_be_answered_before(task, seed):
    examples = task.examples(4, seed)
    symbols = examples.inputs[..., : task.n_dims]
    slot = examples.roles["query"] - 2 * task.n_chains * task.n_steps
    example = torch.arange(4)[:, None]
    for k in range(1, task.n_steps):
        written = symbols[example, examples.roles[f"written{k}"]]
        assert torch.equal(written, examples.targets[example, slot, k - 1])


def test_a_model_that_writes_reads_its_own_symbols_and_none_that_stood_there():
    task = WritingTask(n_steps=4, n_chains=3)
    examples = task.examples(6, 0)
    assert torch.equal(write(lambda inputs: looked_up(task, inputs), task, examples), examples.targets)
    shifted = write(lambda inputs: inputs[..., : task.n_dims] + 1, task, examples)
    asked = examples.inputs[:, task.asked_at_once.n_positions - 3 :, :4][:, :3]
    for step in range(4):
        assert torch.allclose(shifted[:, :, step], asked + step + 1)


def test_errors_add_up_only_where_a_model_reads_its_own_symbols():
    task = WritingTask(n_steps=3, n_chains=2)
    shown, own = written_losses(lambda inputs: looked_up(task, inputs) + 0.1, task, task.examples(300, 0))
    # Off by 0.1 each time; the next symbol is still found, so that errors do not grow.
    assert shown.mean == pytest.approx(0.01, abs=1e-6)
    assert own.mean == pytest.approx(0.01, abs=2e-3)
    drifting = WritingTask(n_steps=3, n_chains=1)
    shown, own = written_losses(lambda inputs: inputs[..., :4] + 1, drifting, drifting.examples(300, 0))
    assert own.n_examples == 300
    assert own.components["x3"] > shown.components["x3"]  # three steps of 1 away from x0, instead of one away from x2


def test_two_layers_are_enough_by_flow_whatever_the_length():
    task = WritingTask(n_steps=7)
    looks = OneHot({role: f"pair{k}.second" for k, role in enumerate(task.read_at.values(), start=1)})
    found = flow_check(Circuit({Head(0, 0): Previous(), Head(1, 0): looks}), task)
    assert found.known_at == {f"x{k}": 1 for k in range(1, 8)}
