import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import BadInput, Head
from circuits.ablation.clamping import Clamp, clamped
from circuits.model.patterns import attention_patterns


def patterns(model, examples, *clamps):
    with clamped(model, clamps, examples.roles):
        return dict(attention_patterns(model, examples))


def circuit_flow(pattern, roles, source, target):
    example = torch.arange(len(roles))[:, None]
    return pattern[example, roles[source], roles[target]]


def test_a_forced_path_takes_all_attention_of_its_head_and_nothing_of_the_others(random_model, task):
    examples = task.examples(3, seed=0)
    before = patterns(random_model, examples)
    after = patterns(random_model, examples, Clamp({"query": "pair1.second"}, Head(0, 1), forced=True))
    assert torch.equal(
        circuit_flow(after[0][:, 1], examples.roles, "query", "pair1.second"), torch.ones(3, task.n_chains)
    )
    assert torch.equal(after[0][:, 0], before[0][:, 0])
    elsewhere = examples.roles["pair1.second"]
    assert torch.equal(after[0][0, 1, elsewhere[0]], before[0][0, 1, elsewhere[0]])


def test_a_forbidden_path_gets_no_attention_in_any_head_and_chain_and_rows_still_sum_to_one(random_model, task):
    examples = task.examples(3, seed=0)
    queries, keys = examples.roles["pair2.second"], examples.roles["pair2.first"]
    for pattern in patterns(random_model, examples, Clamp({"pair2.second": "pair2.first"})).values():
        for example in range(3):
            assert pattern[example][:, queries[example]][:, :, keys[example]].eq(0).all()
        assert torch.allclose(pattern.sum(dim=-1), torch.ones(()))


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_what_is_forbidden_does_not_tell_which_chain_is_ones_own(task, seed):
    """Two examples that differ only in how chains are laid out have the same gaps."""
    roles = task.examples(2, seed).roles
    closed = Clamp({"query": "pair1.second", "pair2.second": "pair2.first"}).closed(roles, task.n_positions)
    assert torch.equal(closed[0], closed[1])


def test_what_a_clamp_leaves_open_keeps_its_proportions(random_model, task):
    examples = task.examples(2, seed=1)
    roles = examples.roles
    before = patterns(random_model, examples)[0][:, 0]
    after = patterns(random_model, examples, Clamp({"query": "pair1.second"}))[0][:, 0]
    ratio = circuit_flow(after, roles, "query", "pair2.first") / circuit_flow(before, roles, "query", "pair2.first")
    example = torch.arange(2)[:, None, None]
    gone = before[example, roles["query"][:, :, None], roles["pair1.second"][:, None, :]].sum(dim=-1)
    assert torch.allclose(ratio, 1 / (1 - gone), rtol=1e-4)


def test_gradients_reach_the_scores_that_are_left_open_and_not_those_of_a_forced_row(model, problem):
    examples = problem.examples(4, seed=0)
    for forced, reaches in ((True, False), (False, True)):
        model.zero_grad()
        with clamped(model, [Clamp({"query": "pair1.second"}, Head(1, 0), forced=forced)], examples.roles):
            problem.losses(model(examples.inputs), examples).mean().backward()
        assert bool(model.blocks[1].attn.W_Q.grad.abs().sum() > 0) == reaches
    model.zero_grad()


def test_afterwards_the_model_is_as_it_was(random_model, task):
    examples = task.examples(2, seed=0)
    before = random_model(examples.inputs)
    patterns(random_model, examples, Clamp({"query": "pair1.second"}, forced=True))
    assert torch.equal(random_model(examples.inputs), before)


@pytest.mark.parametrize(
    ("clamps", "message"),
    [
        ([Clamp({"query": "pair9.first"})], "unknown role 'pair9.first'"),
        ([Clamp({"query": "pair1.first"}, Head(3, 0))], "L3H0 does not exist"),
        ([Clamp({"pair2.first": "query"})], "against the causal mask"),
        ([Clamp({"query": "pair1.first"}, forced=True), Clamp({"query": "pair1.first"})], "nothing to attend to"),
    ],
)
def test_clamps_that_do_not_fit_are_refused(random_model, task, clamps, message):
    examples = task.examples(2, seed=0)
    with pytest.raises(BadInput, match=message), clamped(random_model, clamps, examples.roles):
        pass
