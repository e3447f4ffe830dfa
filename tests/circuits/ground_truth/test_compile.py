import pytest
import torch

from benchmarks.ground_truth.harder import Distractor, distract
from circuits import Circuit, Head, OneHot, role_attention
from circuits.ground_truth import compile_circuit, known_after, solves
from circuits.mechanisms import Previous, Uniform
from tests.handmade import ChainTask, doubling_circuit
from tests.refusals import assert_refused

TWO_STEPS = doubling_circuit()


def test_what_each_role_knows_follows_the_paths_layer_by_layer():
    start, first, second, third = known_after(TWO_STEPS, ChainTask(2))
    assert start["pair2.second"] == {"x2"}
    assert first["pair2.second"] == {"x1", "x2"}
    assert first["query"] == {"x0"}
    assert second["pair1.second"] == {"x0", "x1", "x2"}
    assert third["query"] == {"x0", "x1", "x2"}


def test_two_roles_without_a_symbol_in_common_cannot_be_joined():
    blind = TWO_STEPS.with_head(Head(0, 0), OneHot({"pair1.second": "pair1.first", "query": "pair2.second"}))
    assert_refused(r"L0H0 query -> pair2\.second: the two roles share no symbol", compile_circuit, blind, ChainTask(2))


def test_the_compiled_model_attends_exactly_along_the_paths():
    task = ChainTask(2)
    attention = role_attention(compile_circuit(TWO_STEPS, task), task.examples(32, seed=1))
    roles = task.roles
    for layer in range(3):
        wanted = dict(TWO_STEPS.heads[Head(layer, 0)].paths)
        for i, source in enumerate(roles):
            assert attention[layer, 0, i, roles.index(wanted.get(source, source))] == pytest.approx(1.0, abs=1e-4)


def test_without_a_path_the_answer_that_it_carries_is_missing():
    task = ChainTask(2)
    model, examples = compile_circuit(TWO_STEPS, task), task.examples(64, seed=0)
    model.blocks[1].attn.W_O.data.zero_()
    with torch.no_grad():
        parts = task.losses(model(examples.inputs), examples).mean(dim=0)
    assert parts.tolist() == pytest.approx([0.0, 1.0], abs=1e-5)


def test_distractors_attend_somewhere_and_change_nothing():
    task = ChainTask(2)
    noisy = {Head(1, 1): Distractor({"query": "pair2.second"}, noise=3.0)}
    model, examples = distract(compile_circuit(TWO_STEPS, task, n_heads=2), task, noisy), task.examples(32, seed=0)
    with torch.no_grad():
        assert task.losses(model(examples.inputs), examples).mean() < 1e-3
    roles = task.roles
    seen = role_attention(model, examples)[1, 1, roles.index("query"), roles.index("pair2.second")]
    assert seen == pytest.approx(1 / 3, abs=1e-4)  # of every chain alike: it looks by position alone


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.with_head(Head(2, 0), OneHot({"query": "pair2.second"})), "share no symbol"),
        (lambda c: c.with_head(Head(1, 0), OneHot({"query": "pair1.second"})), "does not solve the task"),
        (lambda c: c.with_head(Head(1, 0), Uniform()), "only one-hot heads can be compiled"),
        (lambda c: c.with_head(Head(1, 0), OneHot({"query": "pair1.second"}, "uniform")), "with zero elsewhere"),
        (lambda c: Circuit(), "the circuit has no path"),
        (lambda c: c.with_head(Head(3, 0), OneHot({"pair2.first": "query"})), "against the causal mask"),
        (lambda c: c.with_head(Head(3, 0), OneHot({"query": "pair9.first"})), "unknown role 'pair9.first'"),
    ],
)
def test_what_cannot_be_compiled_is_refused(change, message):
    two_deep = TWO_STEPS if "symbol" not in message else Circuit(dict(list(TWO_STEPS.heads.items())[:1]))
    assert_refused(message, compile_circuit, change(two_deep), ChainTask(2))


def test_a_role_that_looks_at_itself_looks_at_itself():
    task = ChainTask(2)
    looking = TWO_STEPS.with_head(Head(1, 1), OneHot({"query": "query"}))
    model, examples = compile_circuit(looking, task), task.examples(16, seed=0)
    with torch.no_grad():
        assert task.losses(model(examples.inputs), examples).mean() < 1e-3


def test_what_no_path_of_roles_can_solve_is_not_solved():
    assert not solves(Circuit({Head(0, 0): Previous()}), ChainTask(1))
