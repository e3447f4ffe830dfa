"""Does a circuit do the task, and does it do what the model does, in models that fail as it was planted."""

import pytest
import torch

from circuits import Circuit, validate
from circuits.checks.agreement import agreement, solves
from circuits.checks.experiment import Experiment
from circuits.errors import BadInput, Unsolved
from circuits.settings import deciding
from tests.handmade import CHAINS, InductionTask, induction_model

FAILED = 4  # symbols whose queries find nothing


def forgetful():
    """The induction model, whose answering head looks at all positions alike if it is asked for one of some symbols."""
    model = induction_model()
    model.blocks[1].attn.W_Q.data[0, :FAILED] = 0
    return model


def measured(model, circuit, task=None, n_examples=512):
    experiment = Experiment(model, task or InductionTask(), circuit, n_examples=n_examples)
    return experiment, agreement(experiment)


def decisions(found):
    return [verdict.decision for verdict in found.verdicts]


def test_the_circuit_of_a_model_solves_and_agrees(model, circuit):
    experiment, found = measured(model, circuit)
    assert solves(experiment).decision == "holds"
    assert decisions(found) == ["holds"]  # the model fails no example, so nothing is said of these
    assert "fails 0 of 512 examples, too few to count" in found.verdicts[0].sentence
    assert (found.apart, found.n_failed) == (pytest.approx(0.0, abs=1e-4), 0)
    assert experiment.test.n_evaluations == 3 * 512  # model, no heads, circuit: what is known is not run again


def test_a_circuit_that_answers_right_where_the_model_is_wrong_solves_the_task_and_does_not_agree(circuit):
    experiment, found = measured(forgetful(), circuit)
    assert solves(experiment).decision == "holds"
    assert decisions(found) == ["fails", "fails"]
    assert experiment.combined.loss.mean < 1e-3 < 0.2 < experiment.scale.own.mean
    assert experiment.combined.excess == pytest.approx(-found.apart)  # better than the model, everywhere
    assert found.nearer == pytest.approx(1.0, abs=0.01)  # where the model fails, it gives the right answers
    assert "nearer to the right answers" in found.verdicts[1].sentence
    report = validate(forgetful(), InductionTask(), circuit, n_examples=256)
    assert {one.name: one.decision for one in report.statements}["agrees"] == report.decision == "fails"


def test_a_head_left_intact_fails_where_the_model_does_and_says_nothing_of_itself(circuit):
    experiment, found = measured(forgetful(), circuit.without_heads(["L1H0"]))
    assert decisions(found) == ["holds", "holds"]
    assert found.n_failed > 32
    assert (found.nearer, found.correlation) == (pytest.approx(-1.0, abs=0.01), pytest.approx(1.0, abs=1e-3))
    said = solves(experiment)
    assert said.decision == "undecided"
    assert said.sentence.endswith("The circuit leaves 1 head intact and says nothing of it: L1H0.")


class EitherMember(InductionTask):
    """Both members of the pair are right answers."""

    def losses(self, outputs, examples):
        members = torch.stack([examples.inputs[:, -CHAINS:], examples.targets], dim=-1)
        return (1 - outputs[:, -CHAINS:].gather(2, members).sum(dim=-1)).square().mean(dim=1, keepdim=True)


class Compared(EitherMember):
    """The same, with a distance of two answers."""

    def differences(self, outputs, others, examples):
        return (outputs - others)[:, -CHAINS:].square().sum(dim=-1).mean(dim=1)[:, None, None]


def test_an_answer_that_costs_the_same_is_the_same_only_for_a_task_that_does_not_compare_answers(model):
    other = Circuit({"L0H0": "previous", "L1H0": {"query": "pair1.first"}})
    (solving, by_losses), (_, by_answers) = (measured(model, other, task()) for task in (EitherMember, Compared))
    assert solves(solving).decision == "holds"
    assert (decisions(by_losses)[0], by_losses.verdicts[0].sentence[:24]) == ("holds", "The circuit's losses are")
    assert (decisions(by_answers)[0], by_answers.verdicts[0].sentence[:25]) == ("fails", "The circuit's outputs are")
    assert by_answers.apart == 1.0  # one symbol instead of another: a distance of 2, and the range is (1 - 2/12)²
    assert solving.scale.width == pytest.approx((5 / 6) ** 2, abs=0.01)


class OneByOne(InductionTask):
    """The same problem, whose every pair is an instance."""

    def instance_losses(self, outputs, examples):
        wanted = torch.nn.functional.one_hot(examples.targets, outputs.shape[-1])
        return (outputs[:, -CHAINS:] - wanted).square().sum(dim=-1, keepdim=True)


def test_failures_are_counted_by_instance(circuit):
    model = induction_model()
    model.blocks[1].attn.W_Q.data[0, 0] = 0  # it forgets one symbol: an example has at most one query for it
    experiment, found = measured(model, circuit, OneByOne())
    asked = (experiment.test.examples.take(slice(0, 512)).inputs[:, -CHAINS:] == 0).sum().item()
    assert (found.n_failed, decisions(found)[1]) == (asked, "fails")
    assert f"fails {asked} of {3 * 512} instances" in found.verdicts[1].sentence
    forgets_more, found = measured(forgetful(), circuit, OneByOne())
    asked = forgets_more.test.examples.take(slice(0, 512)).inputs[:, -CHAINS:] < FAILED
    assert found.n_failed == asked.sum().item()


@pytest.mark.parametrize(("share", "decided"), [(0.07, ["fails"]), (0.1, [])])
def test_failures_decide_from_a_share_on_and_not_from_a_number_of_examples(circuit, share, decided):
    model = induction_model()
    model.blocks[1].attn.W_Q.data[0, 0] = 0  # one query in twelve fails
    for n_examples in (128, 512):
        with deciding(least=share):
            _, found = measured(model, circuit, OneByOne(), n_examples)
        assert decisions(found)[1:] == decided
    said = "too few to count (below 10%); there the circuit is nearer to the right answers (+1.00"
    assert (said in found.verdicts[0].sentence) == (not decided)


class Unasked(OneByOne):
    """The first pair is not asked for."""

    def instance_losses(self, outputs, examples):
        losses = super().instance_losses(outputs, examples)
        return torch.cat([torch.full_like(losses[:, :1], torch.nan), losses[:, 1:]], dim=1)

    def losses(self, outputs, examples):
        return self.instance_losses(outputs, examples).nanmean(dim=1)

    def differences(self, outputs, others, examples):
        return (outputs - others)[:, -CHAINS:].square().sum(dim=-1, keepdim=True)


def test_instances_that_are_not_asked_for_count_nowhere(circuit):
    other = Circuit({"L0H0": "previous", "L1H0": {"query": "pair1.first"}})
    experiment, found = measured(induction_model(), other, Unasked())
    assert found.apart == pytest.approx(1.0)  # of two pairs: one symbol instead of another
    assert "fails 0 of 1024 instances" in found.verdicts[0].sentence
    assert experiment.combined.loss.mean == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        (lambda asked: asked[..., 0], r"differences have the shape \[\d+, 3\]; expected \[\d+, 3, component\]"),
        (lambda asked: asked[:, :2], r"differences have the shape \[\d+, 2, 1\]"),
        (lambda asked: asked / 0, "differences are NaN or infinite"),
    ],
)
def test_differences_of_another_shape_or_without_a_number_are_one_line(model, circuit, differences, said):
    class Wrong(Unasked):
        def differences(self, outputs, others, examples):
            return differences(torch.ones(len(examples), CHAINS, 1))

    with pytest.raises(BadInput, match=said):
        measured(model, circuit, Wrong(), n_examples=8)


def test_half_precision_outputs_are_compared_in_single_precision(circuit):
    seen = []

    class Watching(OneByOne):
        def instance_losses(self, outputs, examples):
            seen.append(outputs.dtype)
            return super().instance_losses(outputs, examples)

    measured(induction_model().to(torch.bfloat16), circuit, Watching(), n_examples=8)
    assert {*seen} == {torch.float32}


def test_a_model_whose_heads_do_nothing_for_the_task_is_unsolved(task, circuit):
    idle = induction_model()
    for block in idle.blocks:
        block.attn.W_O.data.zero_()
    with pytest.raises(Unsolved, match=r"the loss is 1\.0000 .*with all heads idle 1\.0000"):
        validate(idle, task, circuit, n_examples=64)
