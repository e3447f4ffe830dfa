"""Averages within a layout, and the mechanisms of language models; every number was worked out by hand."""

from dataclasses import replace

import pytest
import torch

from circuits import Circuit, FixedPattern, Head, OneHot, Roles, evaluate, load_circuit, save_circuit
from circuits.averages import Averages
from circuits.explorer.draft import Draft
from circuits.mechanisms.mechanism import First, Intact, head_pattern
from circuits.mechanisms.soft import Soft
from tests.refusals import assert_refused

ENDS = torch.tensor([3, 3])
VALID = torch.tensor([[False, True, True, True], [True, True, True, True]])
ROLES = Roles.of({"a": torch.tensor([2, 1]), "end": ENDS}, valid=VALID, layout=torch.tensor([0, 1]))
UNIFORM = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
SHORT = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 0]])
MEAN = FixedPattern(torch.stack([SHORT, UNIFORM]), "mean")
FLAT = FixedPattern(UNIFORM, "mean")


def pattern(mechanism, roles=ROLES):
    return head_pattern(Head(0, 0), mechanism, roles, 4)


def test_a_pattern_of_several_layouts_is_that_of_each_examples_layout_from_its_first_token():
    found = pattern(MEAN)
    assert torch.equal(found[0, 1:, 1:], SHORT[:3, :3])
    assert torch.equal(found[1], UNIFORM)


def test_the_first_token_is_the_first_that_is_no_padding():
    found = pattern(First())
    assert torch.equal(found[0, 1:].argmax(dim=-1), torch.tensor([1, 1, 1]))
    assert torch.equal(found[1].argmax(dim=-1), torch.tensor([0, 0, 0, 0]))
    assert torch.equal(pattern(OneHot({"end": "first"}))[:, 3].argmax(dim=-1), torch.tensor([1, 0]))


def test_a_soft_head_gives_its_weights_and_the_rest_to_the_other_positions():
    found = pattern(Soft({("end", "a"): 0.4}, MEAN))
    assert torch.allclose(found[1, 3], torch.tensor([0.2, 0.4, 0.2, 0.2]))
    assert torch.allclose(found[0, 3], torch.tensor([0, 0.3, 0.4, 0.3]))
    assert torch.equal(found[1, :3], UNIFORM[:3])


def test_a_soft_head_applies_the_attention_that_it_states_where_a_role_moves():
    moves = Roles.of({"a": torch.tensor([0, 1]), "b": torch.tensor([2, 2]), "end": ENDS})
    found = pattern(Soft({("end", "a"): 0.6, ("end", "b"): 0.1}, FLAT), moves)
    assert torch.allclose(found[:, 3], torch.tensor([[0.6, 0.15, 0.1, 0.15], [0.15, 0.6, 0.1, 0.15]]))


def test_a_target_that_a_source_cannot_see_gets_nothing():
    swapped = Roles.of({"a": torch.tensor([1, 3]), "end": torch.tensor([3, 1])})
    found = pattern(Soft({("end", "a"): 1.0}, FLAT), swapped)
    assert torch.equal(found[0, 3], torch.tensor([0.0, 1, 0, 0]))
    assert torch.equal(found[1], UNIFORM)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: replace(ROLES, layout=torch.tensor([0, 0])), "the examples of layout 0 have different lengths"),
        (lambda: replace(ROLES, layout=torch.tensor([0.0, 1.0])), "no whole numbers from 0"),
        (lambda: replace(ROLES, layout=torch.tensor([0])), "no whole numbers from 0"),
        (
            lambda: pattern(MEAN, replace(ROLES, layout=torch.tensor([0, 2]))),
            "no example of layout 2 was averaged over",
        ),
        (lambda: pattern(FLAT), "a mean pattern of one layout; the examples have 2"),
        (lambda: pattern(MEAN, replace(ROLES, layout=None)), "different lengths and no layout"),
        (lambda: Roles.of({"first": ENDS}), "called 'first', which means something else"),
        (lambda: Soft({("end", "a"): 1.5}, MEAN), "the weight of end -> a is 1.5; expected at most 1"),
        (lambda: Soft({("end", "a"): -1}, MEAN), "the weight of end -> a is -1; expected a number above 0"),
        (lambda: Soft({("end", "to"): 0.5}, MEAN), "called 'to', which means something else"),
        (lambda: Soft({}, MEAN), "needs at least one path"),
        (lambda: Soft({("end", "a"): 0.5}, "zero"), "expected a fixed pattern, such as mean"),
        (lambda: pattern(Intact()), "intact is no pattern"),
    ],
)
def test_what_fits_no_layout_and_what_is_no_mechanism_is_refused(wrong, said):
    assert_refused(said, wrong)


def test_averages_are_taken_within_a_layout(random_model, chains):
    examples = chains.examples(8, seed=0)
    kinds = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    found = Averages.of(random_model, replace(examples, roles=replace(examples.roles, layout=kinds)))
    for kind in (0, 1):
        alone = Averages.of(random_model, examples.take((kinds == kind).nonzero()[:, 0]))
        assert torch.allclose(found.attention[kind], alone.attention[0], atol=1e-6)
        assert torch.allclose(found.outputs[kind], alone.outputs[0], atol=1e-6)


def test_a_circuit_with_soft_intact_and_first_heads_is_the_same_after_a_file(tmp_path):
    soft = Soft({("end", "a"): 0.62, ("a", "end"): 0.1}, MEAN)
    circuit = Circuit({"L0H0": soft, "L0H1": "intact", "L1H0": "first", "L1H1": {"end": "first"}})
    save_circuit(circuit, tmp_path / "circuit.yaml")
    again = load_circuit(tmp_path / "circuit.yaml")
    assert again == circuit
    assert again.heads["L0H0"].paths == (("a", "end"), ("end", "a"))
    text = (tmp_path / "circuit.yaml").read_text()
    (tmp_path / "circuit.yaml").write_text(text.replace("a: 0.62", "a: 0.62\n    a:\n    - {to: end, slot: [0]}", 1))
    assert_refused("line|weights", load_circuit, tmp_path / "circuit.yaml")


def test_a_head_that_is_named_intact_computes_what_an_unnamed_one_does(random_model, chains):
    examples, named = chains.examples(8, seed=0), Circuit({"L0H0": "uniform", "L1H0": "intact"})
    assert torch.equal(*evaluate(random_model, chains, examples, [named, named.without_heads(["L1H0"])]))


def test_instances_that_share_both_ends_of_a_soft_path_count_once():
    four = Roles.of({"end": torch.full((1, 4), 3), "a": torch.zeros(1, 4).long()})
    soft = Soft({("end", "a"): 0.4}, FLAT)
    assert torch.equal(soft.pattern(four, 4), soft.pattern(four.take(slice(0, 1)), 4))
    assert soft.pattern(four, 4)[0, 3, 0] == pytest.approx(0.4)


def test_a_path_of_a_soft_head_is_removed_alone_and_without_any_its_average_is_left():
    two = Circuit({"L0H0": Soft({("end", "a"): 0.3, ("end", "b"): 0.4}, FLAT)})
    one = two.without(two.paths[0])
    assert one.heads[Head(0, 0)] == Soft({("end", "b"): 0.4}, FLAT)
    draft = Draft(two, one).toggled(one.paths[0])
    assert draft.circuit.heads[Head(0, 0)] == FLAT
    assert draft.cycled(Head(0, 0)).circuit.heads[Head(0, 0)].name == "uniform"
