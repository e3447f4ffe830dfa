import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retrieval_interp import RetrievalTask
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.retrieval import StepOrder
from tests.refusals import assert_refused
from tests.sequences import symbols_of

tasks = st.builds(
    RetrievalTask,
    n_steps=st.integers(1, 6),
    n_chains=st.integers(1, 6),
    n_dims=st.sampled_from([2, 4, 6]),
    implicit_curriculum=st.booleans(),
    step_order=st.sampled_from(StepOrder),
)


@given(tasks, st.integers(0, 1000))
def test_every_pairs_second_symbol_is_the_next_pairs_first(task, seed):
    examples = task.examples(5, seed)
    for k in range(1, task.n_steps):
        following = symbols_of(task, examples, f"pair{k + 1}.first")
        assert torch.equal(symbols_of(task, examples, f"pair{k}.second"), following)
    assert torch.equal(symbols_of(task, examples, "query"), symbols_of(task, examples, "pair1.first"))


@given(tasks, st.integers(0, 1000))
def test_the_targets_are_the_second_symbols_in_the_order_of_the_queries(task, seed):
    examples = task.examples(5, seed)
    slot = examples.roles["query"] - 2 * task.n_chains * task.n_steps
    example = torch.arange(5)[:, None]
    for i, part in enumerate(task.loss_components):
        assert torch.equal(examples.targets[example, slot, i], symbols_of(task, examples, f"pair{part[1:]}.second"))


@given(tasks, st.integers(0, 1000))
def test_every_position_has_one_role_and_the_last_step_stands_first_unless_said_otherwise(task, seed):
    roles = task.examples(5, seed).roles
    assert torch.equal(roles.positions.flatten(1).sort(dim=1).values, torch.arange(task.n_positions).expand(5, -1))
    assert (roles["query"] >= 2 * task.n_chains * task.n_steps).all()
    assert all(torch.equal(roles[f"pair{k}.first"] + 1, roles[f"pair{k}.second"]) for k in range(1, task.n_steps + 1))
    blocks = [roles[f"pair{k}.first"].max().item() for k in range(1, task.n_steps + 1)]
    assert blocks == sorted(blocks, reverse=task.step_order is StepOrder.LAST_FIRST)


def test_the_chains_are_shuffled_independently_in_every_block():
    order = RetrievalTask(n_steps=2, n_chains=3).draw(20_000, RngStream.EVALUATION, 0).order.long()
    code = (order * torch.tensor([9, 3, 1])).sum(dim=-1)  # [example, block]: one number for each of the 6 orders
    for one in range(3):
        for other in range(one):
            joint = torch.stack([code[:, one], code[:, other]], dim=1).unique(dim=0, return_counts=True)[1]
            assert len(joint) == 36
            # 20,000 / 36 = 556 of each pair of orders; five standard deviations are 117.
            assert (joint - 20_000 / 36).abs().max() < 117


def test_position_codes_are_cosine_and_sine_at_two_speeds():
    codes = RetrievalTask(n_steps=1).position_codes()
    assert codes[0].tolist() == [1, 0, 1, 0]
    angles = torch.tensor([3.0, 0.03])
    assert torch.allclose(codes[3].view(2, 2), torch.stack([angles.cos(), angles.sin()], dim=1))


def test_validation_examples_never_overlap_a_training_set_even_with_the_same_seed():
    task = RetrievalTask(n_steps=1, n_chains=1, n_dims=2)
    seen = {tuple(row) for row in task.training_set(5_000, seed=7).symbols.flatten(1).tolist()}
    for seed in (0, 7):
        assert seen.isdisjoint(map(tuple, task.draw(5_000, RngStream.EVALUATION, seed).symbols.flatten(1).tolist()))


def test_the_same_seed_draws_the_same_and_global_generators_are_left_alone():
    task = RetrievalTask(n_steps=2)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    one, again, other = task.examples(3, 1), task.examples(3, 1), task.examples(3, 2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one.inputs, again.inputs)
    assert not torch.equal(one.inputs, other.inputs)


def test_answering_zero_scores_one_and_averaging_the_candidates_three_quarters():
    task = RetrievalTask(n_steps=2)
    examples = task.examples(4_000, 0)
    zero = task.losses(torch.zeros(4_000, task.n_positions, task.d_output), examples)
    assert zero.mean().item() == pytest.approx(1.0, abs=0.01)
    candidates = examples.targets.mean(dim=1, keepdim=True).expand(-1, 4, -1, -1).flatten(2)
    outputs = torch.cat([torch.zeros(4_000, task.n_positions - 4, task.d_output), candidates], dim=1)
    assert task.losses(outputs, examples).mean().item() == pytest.approx(0.75, abs=0.01)


def test_the_loss_has_one_part_for_each_symbol_and_they_do_not_mix():
    task = RetrievalTask(n_steps=3)
    examples = task.examples(2, 0)
    outputs = torch.zeros(2, task.n_positions, task.d_output)
    outputs[:, -4:] = examples.targets.flatten(2)
    outputs[:, -4:, 4:8] += 2.0  # x2 is off by 2 in every number
    assert torch.allclose(task.losses(outputs, examples), torch.tensor([[0.0, 4.0, 0.0]] * 2))


@given(st.integers(2, 5), st.integers(0, 1000), st.data())
def test_a_symbol_that_is_left_out_is_not_asked_for_and_nothing_else_changes(n_steps, seed, data):
    left_out = data.draw(st.integers(1, n_steps - 1))
    whole, without = RetrievalTask(n_steps), RetrievalTask(n_steps, left_out=left_out)
    kept = [k - 1 for k in range(1, n_steps + 1) if k != left_out]
    assert without.loss_components == tuple(whole.loss_components[k] for k in kept)
    assert without.asked == ", ".join(without.loss_components)
    assert torch.equal(without.examples(3, seed).inputs, whole.examples(3, seed).inputs)
    assert torch.equal(without.examples(3, seed).targets, whole.examples(3, seed).targets[:, :, kept])


@given(st.integers(2, 5), st.sampled_from(StepOrder), st.integers(0, 1000), st.data())
def test_chains_that_are_cut_off_are_the_same_chains_with_fewer_steps(n_steps, order, seed, data):
    task = RetrievalTask(n_steps, implicit_curriculum=False, step_order=order)
    fewer = data.draw(st.integers(1, n_steps))
    draws = task.training_set(6, seed).take(torch.tensor([3, 0, 5]))
    whole, short = task.assemble(draws), task.shortened(fewer).assemble(task.first_steps(draws, fewer))
    for role in task.shortened(fewer).roles:
        assert torch.equal(symbols_of(task.shortened(fewer), short, role), symbols_of(task, whole, role))
    last = symbols_of(task, whole, f"pair{fewer}.second")
    slot = short.roles["query"] - 2 * task.n_chains * fewer
    assert torch.equal(short.targets[torch.arange(3)[:, None], slot, 0], last)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RetrievalTask(0), "n_steps is 0"),
        (lambda: RetrievalTask(1, n_chains=0), "n_chains is 0"),
        (lambda: RetrievalTask(1, n_dims=3), "n_dims is 3; expected an even number"),
        (lambda: RetrievalTask(1).examples(1, -1), "seed is -1"),
        (lambda: RetrievalTask(1).examples(0, 1), "examples is 0"),
        (lambda: RetrievalTask(1).examples(10**9, 1), "do not fit into memory"),
        (lambda: RetrievalTask(3, left_out=3), "left_out is 3; expected"),
        (lambda: RetrievalTask(3, left_out=1, implicit_curriculum=False), "x1 cannot be left out.*only x3 is asked"),
    ],
)
def test_impossible_tasks_are_refused(make, message):
    assert_refused(message, make)
