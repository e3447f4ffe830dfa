"""A task with a fixed data set: averages, choices and tests never share an example."""

from itertools import combinations

import pytest
import torch

from circuits import discover, validate
from circuits.losses import sample
from circuits.split import SHARES, Part, part, sizes
from circuits.task import OnData
from tests.handmade import InductionTask
from tests.refusals import assert_refused


class OnFile(InductionTask):
    """The induction problem with a data set instead of fresh examples."""

    def __init__(self, n):
        drawn = InductionTask().examples(2 * n, seed=5)
        _, first = torch.unique(drawn.inputs, dim=0, return_inverse=True)
        once = torch.tensor([*{number: place for place, number in enumerate(first.tolist())}.values()])
        self.data = drawn.take(once[:n])


def rows(examples):
    return {tuple(row) for row in examples.inputs.tolist()}


def test_the_parts_of_a_data_set_have_no_example_in_common_whatever_the_seed():
    task = OnFile(1700)
    assert isinstance(task, OnData)
    drawn = {stream: rows(part(task, stream).examples(n, seed=n)) for stream, n in sizes(task).items()}
    assert [len(drawn[stream]) for stream in SHARES] == [100, 100, 100, 100, 400, 400, 100, 400]
    assert all(one.isdisjoint(other) for one, other in combinations(drawn.values(), 2))
    assert rows(part(task, "validation").examples(400, seed=1)) == drawn["validation"]


def test_discovery_and_validation_use_different_examples_and_the_report_says_the_split(model, monkeypatch):
    task, seen = OnFile(1700), {}
    given = Part.examples

    def recorded(self, n, seed):
        examples = given(self, n, seed)
        seen.setdefault(self.stream, set()).update(rows(examples))
        return examples

    monkeypatch.setattr(Part, "examples", recorded)
    found = discover(model, task, n_examples=400)
    before = {stream: {*own} for stream, own in seen.items()}
    report = validate(model, task, found.circuit, n_examples=400)
    assert {*before} <= {*SHARES} - {"validation", "validation means"}
    assert {*seen} - {*before} == {"validation", "validation means"}
    assert all(one.isdisjoint(other) for one, other in combinations(seen.values(), 2))
    assert report.split == sizes(task)
    assert report.decision == "holds"


def test_a_part_is_drawn_once_whatever_the_size_of_a_block_and_no_example_is_resampled_from_itself(monkeypatch):
    monkeypatch.setattr(sample, "BLOCK", 64)
    own = sample.Sample(part(OnFile(1700), "validation"), 400, seed=3)
    taken = [own.take(block) for block in sample.blocks(0, 400)]
    assert len(set().union(*map(rows, taken))) == 400
    assert all((one.counterfactual != one.inputs).any(dim=1).all() for one in taken)


def test_more_examples_than_a_part_has_are_refused_and_fresh_ones_need_no_split(model, circuit):
    said = "the data set has 1700 examples, of which 400 are for validation; 401 were asked for, expected at most 400"
    assert_refused(said, validate, model, OnFile(1700), circuit, n_examples=401)
    assert sizes(InductionTask()) == {}
    assert validate(model, InductionTask(), circuit, n_examples=8).split == {}


@pytest.mark.parametrize("n", [3, 11])
def test_a_data_set_that_is_too_small_for_its_parts_is_one_line(model, circuit, n):
    assert_refused("the data set has", validate, model, OnFile(n), circuit, n_examples=8)
