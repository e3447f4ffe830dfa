"""tracr's programs as they are stored: tracr's own outputs, and heads that attend as the programs' selectors say."""

import pytest
import torch

from benchmarks.tracr.__main__ import compared, pairs, precision_and_recall
from benchmarks.tracr.programs import PROGRAMS, Task, model_of, stored
from circuits.model.patterns import attention_patterns


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_stored_program_gives_tracrs_outputs_and_solves_its_task_by_its_selectors(program):
    model, task, own = model_of(program), Task(program), stored(program)
    examples = task.examples(32, seed=1)
    with torch.no_grad():
        assert model(own["inputs"]) == pytest.approx(own["outputs"], abs=1e-5)
        assert task.losses(model(examples.inputs), examples).max() < 1e-6
    attention = dict(attention_patterns(model, examples))
    for head, selector in program.selectors.items():
        assert torch.equal(pairs(attention[head.layer][:, head.index]), selector(task.tokens(examples)))


def test_pairs_are_compared_as_by_hand():
    pattern = torch.tensor([[[1.0, 0, 0, 0], [0.8, 0.1, 0.1, 0], [0, 0.6, 0.2, 0.2], [0.98, 0.02, 0, 0]]])
    found = pairs(pattern)
    assert found.tolist() == [[[True, True, False], [True, False, False], [False, False, False]]]
    true = torch.zeros(1, 3, 3).bool()
    true[0, :, 0] = True
    assert precision_and_recall(found, true) == (2 / 3, 2 / 3)


def test_in_reverse_every_token_looks_at_the_opposite_one():
    found = compared(PROGRAMS[1])
    assert found["passed"]
    assert found["heads"]["L3H0"]["found"].count("->") == 4


def test_where_two_roles_meet_only_the_clearer_of_two_paths_that_differ_is_found():
    found = compared(PROGRAMS[2])  # the token that is wanted at one place stands at another
    assert found["heads"]["L1H0"]["found"] == "place -> wanted"
    assert not found["passed"]  # L0H0 attends evenly to all smaller tokens; no mechanism says so
