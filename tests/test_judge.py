from dataclasses import replace

import pytest

from circuits import BadInput, Circuit, Head, OneHot, Uniform
from circuits.judge import ENOUGH, FEW, Judge


@pytest.fixture
def judge(model, problem):
    return Judge(model, problem, problem.examples(512, seed=0), threshold=0.05)


def test_a_loss_far_above_the_threshold_is_decided_on_few_examples(judge):
    (judgement,) = judge([Circuit({Head(1, 0): Uniform()})])
    assert (judgement.side, judgement.loss.n_examples) == ("above", FEW)


def test_a_loss_below_the_threshold_is_measured_on_enough_examples(judge, circuit):
    (judgement,) = judge([circuit])
    assert (judgement.side, judgement.loss.n_examples) == ("below", ENOUGH)


def test_a_loss_that_chance_could_decide_is_measured_on_all_examples_and_stays_undecided(model, problem, judge):
    blind = Circuit({Head(0, 0): Uniform()})
    (loss,) = judge.measure([blind])
    near = Judge(model, problem, judge.examples, threshold=loss.mean + loss.standard_error)
    (judgement,) = near([blind])
    assert (judgement.side, judgement.loss.n_examples) == ("undecided", 512)
    (in_passing,) = Judge(model, problem, judge.examples, loss.mean + loss.standard_error)([blind], most=FEW)
    assert in_passing.loss.n_examples == FEW


def test_what_was_measured_once_is_not_measured_again(judge, circuit):
    judge([circuit, circuit])
    n = judge.n_evaluations
    assert n == ENOUGH
    judge([circuit])
    assert judge.n_evaluations == n


def test_measuring_takes_all_examples_however_early_it_could_be_decided(judge):
    wrong = Circuit({Head(1, 0): OneHot({"query": "pair1.first"})})
    judge([wrong])
    (loss,) = judge.measure([wrong])
    assert loss.n_examples == 512
    assert judge.measure([wrong])[0] == loss


def test_a_difference_is_taken_example_by_example(judge, circuit):
    wrong = Circuit({Head(1, 0): OneHot({"query": "pair1.first"})})
    judge([circuit, wrong])
    difference = judge.difference(wrong, circuit)
    assert difference.n_examples == FEW  # on those that both were measured on
    assert difference.mean == pytest.approx(2.0, abs=1e-3)  # (1 - 0)² + (0 - 1)²


def test_one_example_has_no_standard_error(model, problem):
    with pytest.raises(BadInput, match="at least 2"):
        Judge(model, problem, problem.examples(1, seed=0), threshold=0.05)


def test_examples_are_counted_to_the_last(model, problem, circuit):
    judge = Judge(model, problem, replace(problem.examples(40, seed=0)), threshold=0.05)
    assert judge([circuit])[0].loss.n_examples == 40


def test_a_loss_can_be_measured_on_more_examples_without_beginning_again(judge, circuit):
    (few,), (more,) = judge([circuit]), judge.measure([circuit], 256)
    assert (few.loss.n_examples, more.n_examples, judge.n_evaluations) == (ENOUGH, 256, 256)
    shares = []
    judge.measure([circuit, Circuit()], 512, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
