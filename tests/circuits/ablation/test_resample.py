"""Resample ablation, held against hooks written by hand."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from circuits import Circuit, Head, Roles, evaluate, run_ablated
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.mechanisms import Resample, Uniform
from tests.refusals import assert_refused

HEADS = (Head(0, 1), Head(1, 0), Head(2, 1))


@pytest.fixture
def examples(chains):
    return replace(chains.examples(6, seed=0), counterfactual=chains.examples(6, seed=1).inputs)


def by_hand(model, examples, heads):
    """The model's outputs with the outputs z of some heads from a run on the counterfactual inputs."""
    _, cache = model.run_with_cache(examples.counterfactual)

    def write(z, hook, head):
        z[:, :, head.index] = cache["z", head.layer][:, :, head.index]
        return z

    hooks = [(f"blocks.{head.layer}.attn.hook_z", partial(write, head=head)) for head in heads]
    return model.run_with_hooks(examples.inputs, fwd_hooks=hooks)


@pytest.mark.parametrize("n", [1, 3])
def test_a_resampled_head_writes_what_it_does_on_the_counterfactual_input_and_nothing_else_changes(
    random_model, chains, examples, n
):
    expected = by_hand(random_model, examples, HEADS[:n])
    circuit = Circuit(dict.fromkeys(HEADS[:n], Resample()))
    assert torch.equal(run_ablated(random_model, circuit, examples), expected)
    (losses,) = evaluate(random_model, chains, examples, [circuit])
    assert torch.allclose(losses, chains.losses(expected, examples), atol=1e-6)
    assert not torch.allclose(losses, chains.losses(random_model(examples.inputs), examples), atol=1e-6)


def test_with_every_head_replaced_the_outputs_are_those_of_the_same_head_and_example(random_model, chains, examples):
    heads = [Head(layer, index) for layer in range(3) for index in range(2)]
    whole = Circuit(dict.fromkeys(heads, Resample()))
    mixed = whole.with_head(Head(1, 1), Uniform())
    found = evaluate(random_model, chains, examples, [whole, mixed, Circuit()])
    assert torch.allclose(found[0], chains.losses(by_hand(random_model, examples, heads), examples), atol=1e-6)
    assert torch.allclose(found[1], chains.losses(run_ablated(random_model, mixed, examples), examples), atol=1e-6)


def test_resampling_from_the_prompt_itself_changes_nothing(random_model, examples):
    same = replace(examples, counterfactual=examples.inputs)
    every = Circuit({Head(layer, index): Resample() for layer in range(3) for index in range(2)})
    for circuit in (every, Circuit({Head(1, 0): Resample()})):
        assert torch.equal(run_ablated(random_model, circuit, same), random_model(examples.inputs))


def test_examples_without_counterfactual_inputs_cannot_be_resampled(random_model, chains):
    examples, circuit = chains.examples(2, seed=0), Circuit({Head(1, 0): Resample()})
    assert_refused("no counterfactual inputs", evaluate, random_model, chains, examples, [circuit])
    assert_refused("no counterfactual inputs", run_ablated, random_model, circuit, examples)
    assert_refused("shape", replace, examples, counterfactual=examples.inputs[:1])
    assert_refused("resample", Resample().pattern, Roles.of({"a": torch.tensor([0])}), 3)


def test_faithfulness_is_measured_by_resampling_where_there_are_counterfactual_inputs(random_model, chains):
    class Paired(type(chains)):
        def examples(self, n, seed):
            return replace(super().examples(n, seed), counterfactual=super().examples(n, seed + 1).inputs)

    kinds = []
    for task in (Paired(2, 2), chains):
        found = faithfulness(Experiment(random_model, task, Circuit({Head(0, 0): Uniform()}), n_examples=8))
        kinds.append([*found.ablations])
    assert kinds == [["mean", "uniform", "identity", "resample"], ["mean", "uniform", "identity"]]
