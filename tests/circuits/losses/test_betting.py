"""Decisions by betting, on samples whose mean is known."""

import pytest
import torch

from circuits.losses.betting import decided

RARE = torch.tensor([1.0] + [0.0] * 99)  # one example in a hundred loses all: the mean is 0.01


def samples(values, n, times, seed=0):
    return values[torch.randint(len(values), (times, n), generator=torch.Generator().manual_seed(seed))]


@pytest.mark.parametrize("values", [RARE, -RARE, RARE * 0.5 - RARE.flip(0), torch.tensor([0.0, 1.0]), torch.rand(50)])
def test_at_the_limit_itself_at_most_the_stated_share_is_decided(values):
    limit, error = values.mean().item(), 0.02
    wrong = [decided(one, limit, error) != "undecided" for one in samples(values, 1024, 500)]
    assert sum(wrong) / len(wrong) < 2 * error  # below or above, each with this error


def test_what_is_far_from_the_limit_is_decided_on_few_examples():
    assert {decided(one, 0.05, 0.01) for one in samples(torch.tensor([0.4, 0.9]), 32, 50)} == {"above"}
    assert {decided(one, 0.05, 0.01) for one in samples(torch.tensor([0.0, 0.01]), 128, 50)} == {"below"}
    assert {decided(one, 0.05, 0.01) for one in samples(RARE, 1024, 50)} == {"below"}
    assert decided(torch.zeros(8), 0.05, 0.01) == "undecided"


def test_more_examples_never_change_a_decision():
    for one in samples(RARE, 1024, 20):
        made = [decided(one[:n], 0.015, 0.05) for n in (32, 128, 512, 1024)]
        known = [decision for decision in made if decision != "undecided"]
        assert len({*known}) <= 1
        assert made == ["undecided"] * (4 - len(known)) + known
    turning = torch.cat([torch.ones(100), -torch.ones(2000)])
    assert decided(turning[:100], 0.05, 0.01) == decided(turning, 0.05, 0.01) == "above"
