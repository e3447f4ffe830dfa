import pytest

from circuits import Circuit, Head, OneHot
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms import Uniform
from circuits.settings import Settings

ENOUGH, FEW = Settings().enough, Settings().few


@pytest.fixture
def sequential(model, task):
    return SequentialTest(model, task, task.examples(512, seed=0), threshold=0.05)


def test_a_loss_far_above_the_threshold_is_decided_on_few_examples(sequential):
    decided = sequential.test_one(Circuit({Head(1, 0): Uniform()}))
    assert (decided.decision, decided.loss.n_examples) == ("above", FEW)


def test_a_loss_below_the_threshold_is_measured_on_enough_examples(sequential, circuit):
    decided = sequential.test_one(circuit)
    assert (decided.decision, decided.loss.n_examples) == ("below", ENOUGH)


def test_a_loss_that_chance_could_decide_is_measured_on_all_examples_and_stays_undecided(model, task, sequential):
    blind = Circuit({Head(0, 0): Uniform()})
    (loss,) = sequential.measure([blind])
    near = SequentialTest(model, task, sequential.examples, threshold=loss.mean + loss.standard_error)
    decided = near.test_one(blind)
    assert (decided.decision, decided.loss.n_examples) == ("undecided", 512)
    again = sequential.with_threshold(loss.mean + loss.standard_error)
    in_passing = again.test_one(blind, max_examples=FEW)
    assert in_passing.loss.n_examples == FEW


def test_fewer_examples_than_the_first_round_has_are_enough_if_no_more_are_allowed(sequential, circuit):
    assert sequential.test_one(circuit, max_examples=8).loss.n_examples == 8


def test_what_was_measured_once_is_not_measured_again(sequential, circuit):
    sequential.test({"one": circuit, "other": circuit})
    n = sequential.n_evaluations
    assert n == ENOUGH
    sequential.test_one(circuit)
    assert sequential.n_evaluations == n


def test_measuring_takes_all_examples_however_early_it_could_be_decided(sequential):
    wrong = Circuit({Head(1, 0): OneHot({"query": "pair1.first"})})
    sequential.test_one(wrong)
    (loss,) = sequential.measure([wrong])
    assert loss.n_examples == 512
    assert sequential.measure([wrong])[0] == loss


def test_a_difference_is_taken_example_by_example(sequential, circuit):
    wrong = Circuit({Head(1, 0): OneHot({"query": "pair1.first"})})
    sequential.test({0: circuit, 1: wrong})
    difference = sequential.difference(wrong, circuit)
    assert difference.n_examples == FEW  # on those that both were measured on
    assert difference.mean == pytest.approx(2.0, abs=1e-3)  # (1 - 0)² + (0 - 1)²


def test_a_loss_can_be_measured_on_more_examples_without_beginning_again(sequential, circuit):
    few, (more,) = sequential.test_one(circuit), sequential.measure([circuit], 256)
    assert (few.loss.n_examples, more.n_examples, sequential.n_evaluations) == (ENOUGH, 256, 256)
    shares = []
    sequential.measure([circuit, Circuit()], 512, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
