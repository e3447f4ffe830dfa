import pytest
import torch

from circuits import BadInput, Circuit, Condition, Head, OneHot
from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.experiments.shift_predictions import predicted
from retrieval_interp.experiments.shifts import SHIFTS, check_shiftable, shifts_of
from retrieval_interp.models.build import with_context
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.retrieval import StepOrder

TASK = RetrievalTask(n_steps=3, n_chains=3)
BY_NAME = {shift.name: shift for shift in SHIFTS}
JOIN = {f"pair{k}.second": f"pair{k}.first" for k in (1, 2, 3)}


def shifted(name, n=200, task=TASK):
    return BY_NAME[name].examples(task, n, seed=0)


def symbols(name, n=200):
    return shifted(name, n).draws.symbols


def test_without_a_shift_the_examples_are_those_of_the_task():
    assert torch.equal(shifted("training", 5).examples.inputs, TASK.examples(5, seed=0).inputs)


def test_uniform_numbers_keep_their_mean_and_variance_and_stay_within_the_square_root_of_three():
    drawn = symbols("uniform", 2000)
    assert drawn.abs().max() <= 3**0.5
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.var() - 1) < 0.02


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_the_numbers_of_a_symbol_have_the_stated_correlation(share):
    found = torch.corrcoef(symbols(f"correlated {share}", 2000).reshape(-1, 4).T)
    expected = torch.full((4, 4), share).fill_diagonal_(1.0)
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)


def test_a_shared_symbol_is_that_of_the_first_chain_and_only_these_two_count():
    for name, index in (("last symbol shared", 3), ("x1 shared", 1)):
        drawn = shifted(name)
        same = (drawn.draws.symbols[:, 0] == drawn.draws.symbols[:, 1]).all(dim=-1).all(dim=0)
        assert same.tolist() == [place == index for place in range(4)]
        assert drawn.counted == slice(2)


def test_x1_is_x0_in_every_chain():
    drawn = symbols("x1 is x0")
    assert torch.equal(drawn[:, :, 1], drawn[:, :, 0])
    assert not (drawn[:, :, 2] == drawn[:, :, 0]).any()


def test_an_empty_chain_is_zero_in_the_inputs_and_does_not_count():
    drawn = shifted("one chain empty")
    assert (drawn.examples.inputs[..., :4] == 0).all(dim=-1).sum(dim=1).tolist() == [7] * 200  # 2D + 1 positions
    assert drawn.wanted[:, drawn.counted].shape[1] == 2


def test_chains_in_line_stand_in_the_slot_of_their_number_in_every_block():
    slots = shifted("chains in line").examples.roles.groups["slot"]
    assert (slots == torch.arange(3)).all()


def test_swapped_members_change_places_and_the_queries_stay():
    swapped, plain = (shifted(name, 4).examples.inputs for name in ("members swapped", "training"))
    assert torch.equal(swapped[:, 0:18:2, :4], plain[:, 1:18:2, :4])
    assert torch.equal(swapped[:, 1:18:2, :4], plain[:, 0:18:2, :4])
    assert torch.equal(swapped[:, 18:], plain[:, 18:])
    assert torch.equal(swapped[..., 4:], plain[..., 4:])  # the codes of positions


def test_reversed_blocks_begin_with_the_first_step():
    roles = shifted("blocks reversed").examples.roles
    assert roles["pair1.second"].max() < roles["pair2.first"].min() < roles["pair3.first"].min()


def test_one_chain_fewer_or_more_changes_the_length():
    assert shifted("one chain fewer").examples.inputs.shape[1] == 14
    assert shifted("one chain more").examples.inputs.shape[1] == 28


def test_the_right_answers_stand_at_the_queries_of_their_chains():
    drawn = shifted("training")
    outputs = torch.zeros(200, TASK.n_positions, TASK.d_output)
    outputs[:, -3:] = drawn.examples.targets.flatten(2)
    assert torch.equal(drawn.answers(outputs), drawn.wanted)


def test_a_task_of_one_step_has_no_shift_that_needs_two():
    names = {shift.name for shift in shifts_of(RetrievalTask(n_steps=1))}
    assert set(BY_NAME) - names == {"x1 shared", "x1 is x0", "blocks reversed"}


@pytest.mark.parametrize(
    "task", [ConditionalTask(), RetrievalTask(2, step_order=StepOrder.ANY), RetrievalTask(2, n_chains=1)]
)
def test_a_task_without_chains_in_blocks_is_refused(task):
    with pytest.raises(BadInput, match="somewhere: expected a model of the retrieval problem with two chains"):
        check_shiftable(task, "somewhere")


def survives(circuit, name):
    return predicted(circuit, TASK, BY_NAME[name]).survives


WALK = Circuit({"L0H0": JOIN} | {f"L{k}H0": {"query": f"pair{k}.second"} for k in (1, 2, 3)})
DOUBLING = Circuit(
    {
        "L0H0": "previous",
        "L1H0": {"query": "pair1.second", "pair2.second": "pair3.second"},
        "L2H0": {"query": "pair2.second"},
    }
)
SLOTS = Circuit(
    {
        **WALK.heads,
        Head(2, 0): OneHot(
            {"query": "pair2.second"},
            where={("query", "pair2.second"): Condition("slot", "pair2.second", (0, 1))},
        ),
    }
)


@pytest.mark.parametrize("name", ["training", "uniform", "correlated 0.9", "last symbol shared", "one chain empty"])
def test_a_shift_that_leaves_every_pair_in_a_known_place_breaks_nothing(name):
    assert survives(SLOTS, name) == ("x1", "x2", "x3")


def test_no_circuit_can_tell_whose_x2_follows_a_shared_x1():
    assert survives(WALK, "x1 shared") == ("x1",)
    assert survives(WALK, "x1 is x0") == survives(WALK, "members swapped") == ()


@pytest.mark.parametrize("name", ["blocks reversed", "one chain fewer", "one chain more"])
def test_a_walk_by_content_survives_where_pairs_stand_elsewhere(name):
    assert survives(WALK, name) == ("x1", "x2", "x3")


@pytest.mark.parametrize("name", ["blocks reversed", "one chain fewer", "one chain more"])
def test_a_walk_with_a_path_on_some_slots_breaks_from_its_symbol_on(name):
    assert survives(SLOTS, name) == ("x1",)


def test_doubling_breaks_if_the_mask_forbids_a_pair_to_look_at_the_next_one():
    assert survives(DOUBLING, "one chain more") == ("x1", "x2", "x3")
    assert survives(DOUBLING, "blocks reversed") == ("x1", "x2")


def test_a_copy_with_a_larger_context_gives_the_same_outputs():
    model = VectorTransformer(Architecture(2, 1, 16, 16).config(TASK), seed=3)
    inputs = TASK.examples(4, seed=0).inputs
    longer = with_context(model, 28)
    torch.testing.assert_close(longer(inputs), model(inputs))
    assert longer(shifted("one chain more", 2).examples.inputs).shape == (2, 28, 12)
    with torch.no_grad():
        model.pos_embed.W_pos[0, 0] = 1.0
    with pytest.raises(BadInput, match="learned embeddings of 21 positions"):
        with_context(model, 28)
