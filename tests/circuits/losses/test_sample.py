from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circuits.losses import sample as sample_module
from circuits.losses.sample import Sample, blocks


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sample_module, "BLOCK", 4)


def test_the_first_block_is_what_the_task_gives(task):
    assert torch.equal(Sample(task, 10, seed=3).take(slice(2, 10)).inputs, task.examples(10, seed=3).inputs[2:])


@pytest.mark.usefixtures("small_blocks")
def test_no_more_than_one_block_is_drawn_at_once_and_none_twice(task, drawn):
    sample = Sample(task, 10, seed=3)
    taken = [sample.take(part) for part in blocks(0, 10)]
    asked = drawn[3:]  # without those that seeds are checked on
    assert [len(examples) for examples in taken] == [4, 4, 2]
    assert [n for n, _ in asked] == [4, 4, 4, 4, 2, 2]  # each block, and the other inputs for resampling
    assert len({seed for _, seed in asked}) == 6
    assert asked[0] == (4, 3)
    assert torch.equal(Sample(task, 10, seed=3).take(slice(8, 10)).inputs, taken[2].inputs)  # in whatever order


@given(st.integers(0, 60_000), st.integers(0, 60_000))
def test_blocks_cover_everything_once_and_none_crosses_an_end(start, stop):
    cut = blocks(start, stop)
    assert [n for part in cut for n in range(part.start, part.stop)] == [*range(start, stop)]
    assert all(part.start // sample_module.BLOCK == (part.stop - 1) // sample_module.BLOCK for part in cut)


@pytest.mark.usefixtures("small_blocks")
def test_a_single_example_in_the_last_block_has_other_inputs_to_resample_from_too(task):
    assert Sample(task, 5, seed=3).take(slice(4, 5)).counterfactual.shape == (1, *task.examples(1, 0).inputs.shape[1:])


def test_other_examples_of_another_shape_are_none_to_resample_from(task):
    class Longer(type(task)):
        def examples(self, n, seed):
            drawn = super().examples(n, seed)
            longer = torch.cat([drawn.inputs[:, :1], drawn.inputs], dim=1)
            return drawn if seed == 3 else replace(drawn, inputs=longer)

    assert Sample(Longer(), 4, seed=3).first.counterfactual is None
