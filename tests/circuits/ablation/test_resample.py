"""Ablations of a head's output, mean and resample, held against hooks written by hand."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from circuits import Circuit, Head, Roles, evaluate, run_ablated
from circuits.averages import Averages
from circuits.given import stream_seed
from circuits.losses.sample import Sample
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


def test_an_idle_head_writes_its_average_output_by_position(random_model, chains, examples):
    average, head = Averages.of(random_model, chains.examples(64, seed=3)), Head(1, 1)
    _, seen = random_model.run_with_cache(chains.examples(64, seed=3).inputs)
    mean = seen["z", 1][:, :, 1].mean(dim=0)

    def write(z, hook):
        z[:, :, 1] = mean
        return z

    expected = random_model.run_with_hooks(examples.inputs, fwd_hooks=[("blocks.1.attn.hook_z", write)])
    idle = Circuit({head: "idle", Head(0, 0): Uniform(), Head(2, 0): "identity"})
    assert torch.allclose(run_ablated(random_model, Circuit({head: "idle"}), examples, average), expected, atol=1e-6)
    hooked = chains.losses(run_ablated(random_model, idle, examples, average), examples)
    assert torch.allclose(evaluate(random_model, chains, examples, [idle], averages=average)[0], hooked, atol=1e-6)
    assert_refused("idle replaces a head's output", run_ablated, random_model, idle, examples)


def test_where_a_task_gives_no_counterfactual_inputs_they_are_those_of_as_many_other_examples(chains):
    class Paired(type(chains)):
        def examples(self, n, seed):
            return replace(super().examples(n, seed), counterfactual=super().examples(n, seed + 1).inputs)

    own, given = (Sample(task, 8, seed=5).take(slice(2, 4)) for task in (chains, Paired(2, 2)))
    assert torch.equal(own.counterfactual, chains.examples(8, stream_seed(5, "others")).inputs[2:4])
    assert torch.equal(given.counterfactual, chains.examples(8, seed=6).inputs[2:4])
