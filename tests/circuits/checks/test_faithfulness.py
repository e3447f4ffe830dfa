"""Faithfulness of circuits whose truth is compiled or written by hand, and what the nulls beside it say."""

from functools import partial

import pytest
import torch

from circuits import Circuit, Head, discover, validate
from circuits.averages import averages
from circuits.checks.experiment import STREAM, Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.given import OTHER_SEED, stream_seed
from circuits.ground_truth import compile_circuit
from circuits.settings import deciding
from tests.handmade import SYMBOLS, ChainTask, InductionTask, induction_model, walking_circuit

TASK, TRUE = ChainTask(1), walking_circuit(1)  # L0H0 joins the pairs by position, L1H0 answers by content
IDLE = dict.fromkeys(("L0H1", "L1H1"), "idle")
WHOLE = Circuit({**TRUE.heads, **IDLE})


@pytest.fixture(scope="module")
def planted():
    return compile_circuit(TRUE, TASK, n_heads=2)


def measured(model, circuit, task=TASK):
    return faithfulness(Experiment(model, task, circuit, n_examples=128))


def test_the_heads_that_do_the_work_are_enough_under_both_ablations(planted):
    found = measured(planted, WHOLE)
    assert found.heads == (Head(0, 0), Head(1, 0))
    assert {kind: one.decision for kind, one in found.ablations.items()} == {"mean": "below", "resample": "below"}
    assert [verdict.decision for verdict in found.verdicts] == ["holds", "holds"]
    assert all(one.loss.mean < 1e-6 for one in found.ablations.values())


def test_without_the_head_that_answers_all_is_lost(planted):
    found = measured(planted, WHOLE.with_head("L1H0", "idle"))
    assert found.heads == (Head(0, 0),)
    assert found.ablations["mean"].excess == pytest.approx(1.0, abs=0.01)  # one range: nothing is left of it
    assert [verdict.decision for verdict in found.verdicts] == ["fails", "fails"]


def test_a_positional_head_left_out_makes_a_circuit_unfaithful_although_its_average_pattern_would_not_tell(planted):
    found = measured(planted, WHOLE.with_head("L0H0", "idle"))
    assert [verdict.decision for verdict in found.verdicts] == ["fails", "fails"]
    # L1H0 does not find its pair any more: it spreads over three, and the MLP drops tokens with so little attention.
    assert found.ablations["mean"].excess == pytest.approx(1.0, abs=0.01)
    assert found.patterns.decision == "below"
    assert found.notes[1].startswith("No head outside the circuit needs content")


def test_a_circuit_that_leaves_no_head_out_has_none_to_ablate(planted):
    found = measured(planted, Circuit({**TRUE.heads, **dict.fromkeys(IDLE, "uniform")}))
    assert [(one.decision, "all 4 heads" in one.sentence) for one in found.verdicts] == [("holds", True)] * 2
    assert found.random_heads == ()


def test_as_many_random_heads_are_the_null_of_which_only_the_right_ones_do_the_work(planted):
    """Of the six pairs of four heads one is right."""
    with deciding(random_sets=40):
        found = measured(planted, WHOLE)
    low = [one for one in found.random_heads if one.decision != "above"]
    assert len(found.random_heads) == 40
    assert {one.loss.mean < 1e-6 for one in low} == {True}
    assert 1 <= len(low) < 20
    assert {one.decision for one in found.random_heads[len(low) :]} == {"above"}
    assert found.notes[0].startswith(f"{len(low)} of 40 random sets of 2 heads do not clearly fail")
    assert found.positions.decision == "above"
    assert len(found.notes) == 2


class TokenBefore(InductionTask):
    """Asked for the token before: what the first head of the induction model brings by position alone."""

    def losses(self, outputs, examples):
        before = examples.inputs.gather(1, examples.roles["query"] - 1)
        asked = outputs.gather(1, examples.roles["query"][..., None].expand(-1, -1, SYMBOLS))
        return (asked - torch.nn.functional.one_hot(before, SYMBOLS)).square().sum(dim=-1).mean(dim=1, keepdim=True)


def test_of_a_task_that_positions_alone_solve_the_report_says_so():
    model = induction_model()
    answer, before = model.unembed.W_U[-SYMBOLS:], model.unembed.W_U[-2 * SYMBOLS : -SYMBOLS]
    before.data.copy_(answer)
    answer.data.zero_()
    report = validate(model, TokenBefore(), Circuit({"L0H0": "previous", "L1H0": "idle"}), n_examples=256)
    assert report.decision == "holds", report.headline
    assert any(note.startswith("Positions alone solve this task") for note in report.notes)


def seeds(drawn):
    """Those by which examples were drawn, without the two on which the seeds of a task are checked."""
    return {seed for _, seed in drawn} - {0, OTHER_SEED}


def test_averages_choices_and_tests_share_no_example(model, task, circuit, drawn):
    seen = []
    for way in (
        partial(discover, model, task),
        partial(validate, model, task, circuit),
        partial(averages, model, task),
    ):
        drawn.clear()
        way(seed=4)
        seen.append(seeds(drawn))
    ways = ("discovery", "range", "content", "discovered", "means")
    assert seen[0] == {stream_seed(4, stream) for stream in ways}
    assert seen[1] == {stream_seed(4, stream) for stream in (STREAM, f"{STREAM} means")}
    assert seen[2] == {stream_seed(4, "means")}
    assert not seen[1] & (seen[0] | seen[2])
