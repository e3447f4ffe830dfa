"""Excess losses of the handmade model, and decisions on them.

With all heads idle the answer is the average: 1/12 for every symbol, a loss of (1 - 1/12)² + 11 (1/12)² = 11/12. The
model's own loss is 0. So a loss of L is an excess of 12 L / 11.
"""

import math
from dataclasses import replace

import pytest
import torch

from circuits import Circuit, Head, OneHot, discover, evaluate, validate
from circuits.averages import averages
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import OWN, Range, SequentialTest
from circuits.mechanisms import Condition, Identity, Idle, Resample
from circuits.model import transformer
from circuits.settings import Settings, deciding
from tests.refusals import assert_refused

ENOUGH, FEW = Settings().enough, Settings().few
WRONG = Circuit({Head(1, 0): OneHot({"query": "pair1.first"})})  # the wrong symbol: (1 - 0)² + (0 - 1)² = 2
NOTHING = Circuit({Head(1, 0): Identity()})  # the query's own symbol: 2, too
TWO, LAST = Condition("position", "query", (7, 8)), Condition("position", "query", 9)
ROWS = {("query", "pair1.second"): TWO, ("query", "position 2"): LAST}
PARTLY = Circuit({Head(1, 0): OneHot([*ROWS], where=ROWS)})  # the last query is right by chance, in a third of cases


@pytest.fixture
def sequential(model, task):
    return SequentialTest(model, task, task.examples(512, seed=0), threshold=0.05)


def test_the_range_is_the_loss_with_all_heads_idle_minus_the_models_own(sequential):
    assert sequential.scale.own.mean == pytest.approx(0, abs=1e-3)
    assert sequential.scale.none.mean == pytest.approx(11 / 12, abs=0.01)
    assert sequential.scale.share(Loss(11 / 24, 0.0, 2)) == pytest.approx(0.5, abs=0.01)


def test_the_excess_is_the_share_of_the_range_and_an_example_counts_at_most_all_of_it(model, task, sequential):
    found = sequential.test({"circuit": WRONG, "partly": PARTLY}, min_examples=512)
    assert (found["circuit"].loss.mean, found["circuit"].excess) == (pytest.approx(2.0, abs=1e-3), 1.0)
    losses = evaluate(model, task, sequential.examples, [PARTLY, OWN]).double().mean(dim=2)
    expected = ((losses[0] - losses[1]) / sequential.scale.width).clamp(-1, 1).mean().item()
    assert found["partly"].excess == pytest.approx(expected, abs=1e-5)


def test_a_loss_is_low_only_if_its_average_is_with_examples_that_count_whole(sequential):
    """One example in 64 loses 20 ranges: 0.016 if it counts 1, and 0.31 if it counts whole."""
    sequential.measure([OWN, WRONG])
    lost = sequential._losses[OWN.digest].clone()
    lost[::64] += 20 * sequential.scale.width
    sequential._losses[WRONG.digest] = lost
    found = sequential.test({None: WRONG}, limit=0.2)[None]
    assert (found.excess, found.decision) == (pytest.approx(1 / 64), "undecided")
    lost[::64] -= 15 * sequential.scale.width  # 0.08
    assert sequential.test({None: WRONG}, limit=0.2)[None].decision == "below"


def test_circuits_are_compared_with_the_model_with_one_another_or_with_nothing(sequential, circuit):
    both = {"wrong": WRONG, "right": circuit}
    assert {key: one.decision for key, one in sequential.test(both).items()} == {"wrong": "above", "right": "below"}
    other = sequential.test(both, than=WRONG, limit=0.0, failing="below", min_examples=512)
    assert {key: one.excess for key, one in other.items()} == {"wrong": 0.0, "right": pytest.approx(-1.0, abs=1e-3)}
    assert {key: one.decision for key, one in other.items()} == {"wrong": "undecided", "right": "below"}
    each = sequential.test(both, than={"wrong": NOTHING, "right": circuit})
    assert [one.excess for one in each.values()] == pytest.approx([0.0, 0.0], abs=1e-3)
    costs = sequential.costs({"wrong": WRONG}, than=circuit)
    assert (costs["wrong"].decision, costs["wrong"].loss.mean) == ("above", pytest.approx(2.0, abs=1e-3))


def test_an_absolute_threshold_is_a_loss_whatever_range_and_own_loss_are(model, task):
    scale = Range(own=Loss(0.5, 0.0, 512), none=Loss(1.5, 0.0, 512))  # as if the model's own were 0.5
    test = SequentialTest(model, task, task.examples(512, seed=0), 0.05, scale=scale)
    for threshold, decision in ((0.05, "above"), (1.8, "above"), (2.2, "below")):  # a loss of 2 is beyond the range
        assert test.with_threshold(threshold, absolute=True).test_one(WRONG).decision == decision
    assert test.with_threshold(0.05, absolute=True).test_one(OWN).decision == "below"


def test_a_share_of_the_range_is_below_1(model, task, circuit):
    said = "expected a share of the range, below 1"
    assert_refused(f"the threshold is 1; {said}", validate, model, task, circuit, threshold=1.0)
    assert_refused(f"the threshold is 1.5; {said}", discover, model, task, threshold=1.5)


def test_one_decision_of_many_that_is_enough_to_fail_needs_more_evidence(sequential):
    """Wealth grows by 1 + 0.01 * 0.9 / 0.99 at most with each value of 0 below 0.01: to 100 in 509 examples."""
    zeros = torch.zeros(1024)

    def needed(**several):
        return next(n for n in range(1, 1024) if sequential.decide(zeros[:n], 0.01, **several) == "below")

    fewest = math.log(1 + 0.01 * 0.9 / 0.99)
    assert needed() == needed(above_of=10) == pytest.approx(math.log(100) / fewest, rel=0.05)
    assert needed(below_of=10) == pytest.approx(math.log(1000) / fewest, rel=0.05)
    sequential.searching = True  # by three standard errors
    assert needed(below_of=10) == 2


def test_a_loss_is_measured_on_few_examples_if_it_is_clearly_high_on_enough_if_low_and_on_no_more_than_allowed(
    sequential, circuit
):
    tested = sequential.test_one(circuit, max_examples=8), sequential.test_one(WRONG), sequential.test_one(circuit)
    assert [one.loss.n_examples for one in tested] == [8, FEW, ENOUGH]
    assert [one.decision for one in tested] == ["undecided", "above", "below"]


def test_a_loss_that_chance_could_decide_is_measured_on_all_examples_and_stays_undecided(sequential):
    (excess,) = (one.excess for one in sequential.test({0: PARTLY}, min_examples=512).values())
    assert excess == pytest.approx(2 / 3 * 2 / 3 * 12 / 11, abs=0.05)
    decided = sequential.with_threshold(excess).test_one(PARTLY)
    assert (decided.decision, decided.loss.n_examples) == ("undecided", 512)
    assert sequential.with_threshold(excess).test_one(PARTLY, max_examples=FEW).loss.n_examples == FEW


def test_what_was_measured_once_is_not_measured_again(sequential, circuit):
    assert sequential.scale  # two circuits, the model and all heads idle, on all examples
    assert sequential.n_evaluations == 2 * 512
    sequential.test({"one": circuit, "other": circuit})
    n = sequential.n_evaluations
    assert n == 2 * 512 + ENOUGH
    sequential.test_one(circuit)
    assert sequential.n_evaluations == n


def test_an_excess_over_another_circuit_is_taken_example_by_example(sequential, circuit):
    (_, partly), _ = sequential.each([OWN, PARTLY]), sequential.measure([circuit], FEW)
    excess = sequential.excess(PARTLY, circuit)
    assert excess.n_examples == FEW  # on those that both were measured on
    alone = (partly[:FEW].mean(dim=1) / sequential.scale.width).clamp(max=1)  # the circuit's loss is 0
    assert excess.mean == pytest.approx(alone.mean().item(), abs=1e-3)
    sequential.measure([WRONG], FEW)
    assert sequential.excess(PARTLY, WRONG).mean == pytest.approx(alone.mean().item() - 1, abs=1e-3)
    assert sequential.excess(WRONG, bounded=False).mean == pytest.approx(2 / sequential.scale.width, abs=1e-3)


def test_circuits_that_are_tried_one_by_one_in_a_search_have_the_losses_that_all_have_at_once(
    model, task, circuit, monkeypatch
):
    monkeypatch.setattr(transformer, "POSITIONS_AT_ONCE", 20 * task.examples(2, seed=0).inputs.shape[1])
    means, others = averages(model, task), task.examples(128, seed=1).inputs
    examples = replace(task.examples(128, seed=0), counterfactual=others)
    some = [circuit, WRONG, NOTHING, PARTLY, circuit.with_head("L1H0", Idle()), circuit.with_head("L0H0", Resample())]
    with deciding(one_by_one=1):
        test = SequentialTest(model, task, examples, 0.05, means, searching=True)
        found = [test.measure([one], n)[0].mean for n in (8, 32, 128) for one in some]
    assert len(test._begun) == 3  # blocks from 0, 8 and 32
    assert {len(known) <= 3 for slices in test._begun.values() for known in slices.values()} == {True}
    expected = evaluate(model, task, examples, some, averages=means).mean(dim=2)
    assert found == pytest.approx([one[:n].mean().item() for n in (8, 32, 128) for one in expected], abs=1e-5)


def test_a_loss_can_be_measured_on_more_examples_without_beginning_again(sequential, circuit):
    (few,), (more,) = sequential.measure([circuit], 64), sequential.measure([circuit], 256)
    assert (few.n_examples, more.n_examples, sequential.n_evaluations) == (64, 256, 256)  # however early it is clear
    shares = []
    sequential.measure([circuit, Circuit()], 512, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
