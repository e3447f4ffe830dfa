"""How a symbol comes to the query that its head leaves out; on transformer A, whose rows were followed by hand."""

from dataclasses import replace

import pytest
import torch
from transformer_lens.hook_points import HookPoint

from circuits import BadInput, Circuit, Condition, Head, OneHot
from retrieval_interp import load
from retrieval_interp.experiments.elimination import Row, _changed, elimination, partial_path

FETCH = ("query", "pair1.second")


def circuit(*slots):
    return Circuit({Head(2, 0): OneHot({"query": FETCH[1]}, where={FETCH: Condition("slot", FETCH[1], slots)})})


@pytest.mark.slow
def test_in_transformer_a_the_head_above_fetches_the_fourth_symbol_from_where_it_was_laid_down():
    model, task, _ = load("transformer_a")
    found = elimination(model, task, circuit(0, 2, 3), n_examples=16)
    assert (str(found.path), found.left_out, found.holds) == ("L2H0 query -> pair1.second", 1, True)
    by_step = {step: [one for one in found.outcomes if one.step == step] for step in ("none", "default", "without")}
    assert by_step["none"][0].as_expected == 1.0
    assert by_step["default"][0].nearest == (0.0, 1.0, 0.0, 0.0)
    assert {"L1H0 at position 23", "L3H0 at query"} <= {one.what for one in by_step["without"]}
    led = [one for one in found.outcomes if one.step == "led"]
    assert [one.expected for one in led] == [0, 2, 3]
    assert not replace(found, outcomes=found.outcomes[:2]).holds  # nothing was led elsewhere


def test_a_row_becomes_what_it_is_told_to_and_the_others_stay():
    pattern = torch.ones(2, 2, 4, 4).tril() / 4
    row = Row(Head(0, 1), (1, 3), "position 1, 3")
    led = _changed(pattern, HookPoint(), row, 1)
    assert led[:, 1, [1, 3]].tolist() == [[[0, 1, 0, 0]] * 2] * 2
    assert torch.equal(led[:, 0], pattern[:, 0])
    assert torch.equal(led[:, 1, 2], pattern[:, 1, 2])
    assert _changed(pattern, HookPoint(), row, None)[:, 1, [1, 3]].sum() == 0


def test_a_circuit_without_a_slot_left_out_has_nothing_to_ask():
    task = load("transformer_a").task
    first = ("query", "pair1.first")  # where the chain stands at slot 1 the same head looks at the other member
    where = {FETCH: Condition("slot", FETCH[1], (0, 2, 3)), first: Condition("slot", first[1], (1,))}
    both = Circuit({Head(2, 0): OneHot([FETCH, first], where=where)})
    for whole in (circuit(0, 1, 2, 3), both, Circuit({Head(0, 0): OneHot({"query": "pair1.second"})})):
        with pytest.raises(BadInput, match="on some slots only"):
            partial_path(whole, task)
