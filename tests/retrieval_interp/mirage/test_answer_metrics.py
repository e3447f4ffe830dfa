import pytest
import torch

from retrieval_interp import RetrievalTask
from retrieval_interp.mirage.answer_metrics import (
    CHAIN,
    METRICS,
    NEAREST,
    SQUARED,
    WEIGHT,
    answer_metrics,
    symbol_slots,
)

TASK = RetrievalTask(n_steps=2)


def outputs_of(examples, answers):
    """Outputs of a model that gives these answers at the queries, ``[batch, slot, component, dim]``."""
    outputs = torch.zeros(len(examples), TASK.n_positions, TASK.d_output)
    outputs[:, -TASK.n_chains :] = answers.flatten(2)
    return outputs


def test_perfect_answers_are_perfect_in_every_metric():
    examples = TASK.examples(2000, 0)
    found = answer_metrics(TASK, outputs_of(examples, examples.targets), examples)
    for name, values in found.items():
        way = METRICS[name].way(values.mean().item(), TASK, "x1")
        assert way == pytest.approx(1.0, abs=0.03 if name == WEIGHT else 1e-6)


def test_guesses_have_the_level_that_each_metric_gives_them():
    examples = TASK.examples(20000, 1)
    guess = examples.targets.mean(dim=1, keepdim=True).expand_as(examples.targets)
    found = answer_metrics(TASK, outputs_of(examples, guess), examples)
    for name, values in found.items():
        assert values.mean().item() == pytest.approx(METRICS[name].guess(TASK, 1), abs=0.01), name
    both = found["within 0.5"].amin(dim=-1).mean().item()
    assert both == pytest.approx(METRICS["within 0.5"].guess(TASK, 2), abs=0.01)
    assert METRICS["within 0.5"].way(both, TASK, CHAIN) == pytest.approx(0, abs=0.01)


def test_half_way_from_a_guess_to_the_right_symbol_the_weight_is_half_and_the_squared_error_a_quarter():
    examples = TASK.examples(20000, 2)
    guess = examples.targets.mean(dim=1, keepdim=True)
    found = answer_metrics(TASK, outputs_of(examples, (guess + examples.targets) / 2), examples)
    assert found[WEIGHT].mean().item() == pytest.approx(0.5, abs=0.01)
    assert found[SQUARED].mean().item() == pytest.approx(0.75 / 4, abs=0.01)


def test_an_answer_of_another_chain_is_wrong_in_its_own_instance():
    examples = TASK.examples(8, 3)
    answers = examples.targets.clone()
    answers[:, 0] = examples.targets[:, 1]  # the query in slot 0 is answered with the chain in slot 1
    found = answer_metrics(TASK, outputs_of(examples, answers), examples)
    wrong = examples.roles.group("slot", "query") == 0
    assert torch.equal(found[NEAREST][:, :, 0], (~wrong).float())
    assert torch.equal(found["within 0.1"][:, :, 1], (~wrong).float())


def test_the_slot_of_a_symbol_is_that_of_the_pair_that_holds_it():
    examples = TASK.examples(4, 4)
    slots = symbol_slots(TASK, examples)
    at = examples.roles["pair2.second"]
    assert torch.equal(slots[:, :, 1], at // 2 % TASK.n_chains)
