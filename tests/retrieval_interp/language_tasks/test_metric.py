"""The metrics of language tasks, on a small random model."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from circuits import Circuit, Head, Task, evaluate, run_ablated
from circuits.averages import averages
from circuits.checks.agreement import agreement
from circuits.checks.experiment import Experiment
from circuits.errors import Unsolved
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import Range, SequentialTest
from circuits.mechanisms import Resample, Uniform
from retrieval_interp import on_task
from retrieval_interp.language_tasks.language_task import Metric, at_end
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.models.build import build
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.words import Kind, WordsTask
from tests.refusals import assert_refused

CIRCUITS = [Circuit({Head(0, 1): Uniform()}), Circuit({Head(1, 0): Resample(), Head(0, 0): Resample()})]


@pytest.fixture(scope="module")
def words():
    return WordsTask(Kind.ioi)


@pytest.fixture(scope="module")
def model(words):
    return build(words, Architecture(2, 2, 32, 16).config(words, 0.2), seed=1).eval()


@pytest.mark.parametrize("metric", Metric)
def test_the_loss_and_its_measures_are_those_of_plain_outputs(model, words, metric):
    task = MetricTask(words.task, model, metric, 2.0)
    assert isinstance(task, Task)
    examples = task.examples(8, seed=0)
    found = evaluate(model, task, examples, CIRCUITS)
    beside = SequentialTest(model, task, examples, 0.05).measure(CIRCUITS)
    scale = Range(own=Loss(0.0, 0.0, 8), none=Loss(1.0, 0.0, 8))
    cost = SequentialTest(model, task, examples, 0.05, scale=scale).costs({0: CIRCUITS[0]}, than=CIRCUITS[1])[0]
    apart = beside[0].measures["logit difference"] - beside[1].measures["logit difference"]
    assert cost.ahead.mean == pytest.approx(apart, abs=1e-4)
    plain = at_end(model(examples.inputs), examples)[:, 0].log_softmax(dim=-1)
    right, wrong = words.task.examples(8, seed=0).targets[:, 0, :, 0].T
    for losses, loss, circuit in zip(found, beside, CIRCUITS, strict=True):
        logits = at_end(run_ablated(model, circuit, examples), examples)[:, 0]
        rows = range(8)
        apart, difference = logits[rows, right] - logits[rows, wrong], plain - logits.log_softmax(dim=-1)
        expected = {
            "logit_difference": 1 - apart / 2,
            "probability": 1 - logits.softmax(dim=-1)[rows, right] / 2,
            "kl": (plain.exp() * difference).sum(dim=-1),
        }
        assert torch.allclose(losses[:, 0], expected[metric], atol=1e-5)
        right_first = (logits.argmax(dim=-1) == right).float().mean()
        measured = {"logit difference": apart.mean(), "top-1": right_first, "KL": expected["kl"].mean()}
        assert loss.measures == pytest.approx({name: one.item() for name, one in measured.items()}, abs=1e-4)


@torch.no_grad()
def test_outputs_differ_by_1_from_the_models_on_average_with_all_heads_idle(model, words):
    task = replace(MetricTask.of(model, words.task, Metric.kl), metric=Metric.logit_difference)
    means, examples = averages(model, task), task.examples(512, seed=5)
    idle = Circuit(dict.fromkeys(means.patterns, "idle"))
    outputs = run_ablated(model, idle, examples, means), model(examples.inputs)
    assert task.differences(*outputs, examples).mean() == pytest.approx(1.0, abs=0.2)
    assert task.differences(outputs[1], outputs[1], examples).abs().max() < 1e-5


@torch.no_grad()
def test_the_unablated_model_is_the_one_that_is_there_now(words):
    own = build(words, Architecture(2, 2, 32, 16).config(words, 0.2), seed=1).eval()
    task = MetricTask(words.task, own, Metric.kl, 1.0)
    examples = task.examples(8, seed=0)
    assert evaluate(own, task, examples, [Circuit()]).abs().max() < 1e-5
    own.W_U.mul_(3)
    assert evaluate(own, task, examples, [Circuit()]).abs().max() < 1e-4


def test_what_the_engine_ran_of_the_unablated_model_is_not_run_again(model, words, monkeypatch):
    task, told, seen = MetricTask(words.task, model, Metric.kl, 1.0), [], MetricTask.saw_unablated
    examples = task.examples(16, seed=0)
    expected = replace(task)._unablated(examples)

    def counted(self, opened, residual):
        told.append(len(residual))
        seen(self, opened, residual)

    monkeypatch.setattr(MetricTask, "saw_unablated", counted)
    evaluate(model, task, examples, [Circuit(), *CIRCUITS])
    assert told == [8, 16]  # the few that the task is checked on, and all by the engine
    assert torch.allclose(task._unablated(examples), expected, atol=1e-5)


def test_a_run_of_another_model_is_not_taken_for_that_of_the_tasks_own(model, words):
    other, task = deepcopy(model), MetricTask(words.task, model, Metric.kl, 1.0)
    other.blocks[1].attn.W_V.data *= 2  # with the same unembedding
    examples = task.examples(16, seed=0)
    losses = evaluate(other, task, examples, [Circuit()])[0, :, 0]
    own, changed = (at_end(one(examples.inputs), examples)[:, 0].log_softmax(dim=-1) for one in (model, other))
    assert torch.allclose(losses, (own.exp() * (own - changed)).sum(dim=-1), atol=1e-5)
    assert losses.max() > 1e-3


def test_agreement_is_the_same_from_losses_that_are_distances_and_from_outputs(model, words, monkeypatch):
    task = MetricTask.of(model, words.task, Metric.kl)
    found = [agreement(Experiment(model, task, CIRCUITS[0], n_examples=64))]
    monkeypatch.setattr(MetricTask, "is_distance", False)
    found.append(agreement(Experiment(model, task, CIRCUITS[0], n_examples=64)))
    assert found[0].apart == pytest.approx(found[1].apart, abs=1e-5)
    assert found[0].apart > 0
    assert [one.decision for one in found[0].verdicts] == [one.decision for one in found[1].verdicts]


def test_a_logit_difference_above_the_models_own_is_not_the_models(model, words):
    """A loss of twice the model's logit difference is -1: one-sided, it would be low."""
    task = MetricTask(words.task, model, Metric.logit_difference, 2.0)
    test = SequentialTest(model, task, task.examples(512, seed=0), 0.05)
    more = Circuit({Head(0, 1): Uniform()})
    test.measure([Circuit(), more])
    test.scale = Range(own=Loss(0.0, 0.0, 512), none=Loss(1.0, 0.0, 512))
    test._losses[more.digest] = test._losses[Circuit().digest] - 0.5
    assert test.test_one(more).decision == "above"
    test.two_sided = False
    assert test.test_one(more).decision == "below"


def test_a_model_that_does_not_do_the_task_is_refused(model, words):
    for metric in (Metric.logit_difference, Metric.probability):
        with pytest.raises(Unsolved, match="does not do ioi: its logit difference is"):
            MetricTask.of(model, words.task, metric)


def test_a_model_that_is_too_short_or_knows_too_few_words_is_refused(words):
    other = WordsTask(Kind.induction)
    short = build(words, Architecture(1, 1, 16, 16).config(words), seed=0)
    assert_refused("24 tokens; the model reads 17", MetricTask.of, short, other.task)
    few = build(other, Architecture(1, 1, 16, 16).config(other), seed=0)
    few.cfg.d_vocab = 10
    assert_refused("the model has 10 tokens; its tokenizer has 60", MetricTask.of, few, words.task)


def test_a_bridge_of_a_folder_is_measured_on_padded_prompts_and_resampled_as_with_hooks(words, tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=32, vocab_size=words.d_input, initializer_range=0.3)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    words.tokenizer.save_pretrained(tmp_path)
    model, task = on_task(str(tmp_path), "ioi", "kl")
    examples = task.examples(32, seed=0)
    found = evaluate(model, task, examples, [Circuit(), *CIRCUITS])
    assert found[0].abs().max() < 1e-5
    for losses, circuit in zip(found[1:], CIRCUITS, strict=True):
        assert losses.mean() > 0.01
        assert torch.allclose(losses, task.losses(run_ablated(model, circuit, examples), examples), atol=1e-5)
