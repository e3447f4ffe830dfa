"""Appendix E to the letter, on circuits whose truth is compiled or written by hand."""

import pytest
import torch

from circuits import Circuit, FixedPattern, Head, OneHot, validate
from circuits.averages import averages
from circuits.checks.experiment import Experiment
from circuits.checks.paper_protocol import _step_3, paper_protocol
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms import Uniform
from circuits.mechanisms.soft import Soft
from circuits.report.strip import strip
from tests.handmade import ChainTask

ANSWER = OneHot({"query": "pair1.second"})
JOIN = OneHot({"pair1.second": "pair1.first"})


def by_the_letter(model, task, circuit, **settings):
    return paper_protocol(Experiment(model, task, circuit, **{"n_examples": 256, **settings}))


def test_the_letter_of_appendix_e_takes_nothing_of_a_head_but_the_paths_along_which_it_leads(model, task):
    mean = averages(model, task).patterns[Head(0, 0)]
    circuit = Circuit({Head(0, 0): mean, Head(1, 0): OneHot({"query": "pair1.second"}, "identity")})
    found = by_the_letter(model, task, circuit)
    assert found.circuit.heads == {Head(0, 0): JOIN, Head(1, 0): ANSWER}
    assert (found.decision, len(found.without)) == ("holds", 2)
    n = mean.weights.shape[0]
    nowhere = circuit.with_head(Head(0, 0), FixedPattern(0.6 * torch.eye(n) + 0.4 * torch.eye(n).roll(-1, 1).tril()))
    report = validate(model, task, nowhere, n_examples=256).by("paper")
    assert report.paper.circuit.heads[Head(0, 0)].name in ("uniform", "identity")
    (step_3, *_) = report.paper.verdicts
    assert step_3.decision == "fails"  # nothing but its average or the path can stand for the joining head alone
    assert str(strip(report)[0]) == "✗ the circuit fails, by Appendix E to the letter"


def test_by_the_letter_the_threshold_is_a_loss_and_the_simplest_mechanism_below_it_is_taken(model, task, circuit):
    """With uniform attention of L1H0 nothing is left: the loss is 0.92."""
    own = circuit.with_head(Head(1, 0), OneHot({"query": "pair1.second"}, "uniform"))  # no mechanism of the paper
    strict, lenient = (by_the_letter(model, task, own, threshold=threshold) for threshold in (0.9, 0.95))
    assert strict.alone[Head(1, 0)]["uniform"].loss.mean == pytest.approx(0.92, abs=0.01)
    assert [found.circuit.heads[Head(1, 0)] for found in (strict, lenient)] == [ANSWER, Uniform()]


def test_by_the_letter_a_head_that_uniform_attention_can_replace_is_uniform_whatever_is_said_of_it():
    task = ChainTask(1)
    late_head, late = Head(1, 1), OneHot({"pair1.second": "pair1.first"}, "uniform")
    named = Circuit({Head(0, 0): JOIN, Head(1, 0): ANSWER, late_head: late})  # L1H1 joins too late for anybody
    found = by_the_letter(compile_circuit(named.with_head(late_head, JOIN), task), task, named)
    assert found.circuit.heads == {Head(0, 0): JOIN, Head(1, 0): ANSWER, Head(1, 1): Uniform()}
    assert {path.head for path in found.without} == {Head(0, 0), Head(1, 0)}


def test_by_the_letter_an_idle_head_is_uniform_or_identity_too(model, task):
    found = by_the_letter(model, task, Circuit({Head(0, 0): "idle", Head(1, 0): ANSWER}))
    assert {*found.alone[Head(0, 0)]} == {"uniform", "identity"}
    assert found.verdicts[0].decision == "fails"  # the joining head is neither


def test_by_the_letter_a_soft_head_is_the_one_hot_path_that_has_most_of_its_weights(model, task):
    mean = averages(model, task).patterns
    softs = {("query", "pair1.second"): 0.9, ("query", "pair1.first"): 0.05}
    found = by_the_letter(model, task, Circuit({"L0H0": JOIN, "L1H0": Soft(softs, mean[Head(1, 0)])}))
    assert (found.circuit.heads[Head(1, 0)], found.decision) == (ANSWER, "holds")


def test_one_mechanism_that_is_surely_low_is_enough_for_step_3():
    sure, best = DecidedLoss(Loss(0.041, 0.0005, 128), "below"), DecidedLoss(Loss(0.0405, 0.004, 1024), "undecided")
    assert _step_3({Head(0, 0): {"uniform": sure, "identity": best}}, 0.05).decision == "holds"
