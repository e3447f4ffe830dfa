import json

import pytest
import torch

from retrieval_interp.cli import main
from retrieval_interp.theory.gradients import agreement, cell_gradients, loss_gradients
from retrieval_interp.theory.grid import Cell, Grid
from tests.browser import opened


@pytest.fixture(scope="module")
def gradients(random_model, chains):
    return cell_gradients(random_model, chains.examples(2, seed=0).inputs)


def test_gradients_are_zero_exactly_where_the_grid_says_that_no_path_leads(gradients, random_model, chains):
    grid = Grid(n_prompt=chains.n_positions, n_layers=random_model.cfg.n_layers)
    for start in grid.cells():
        for end in grid.cells():
            pulled = gradients[end.layer, end.position, start.layer, start.position].item()
            assert (pulled > 0) == grid.reaches(start, end), (start, end)


def test_a_gradient_too_much_or_too_little_is_counted(gradients):
    exact = agreement(gradients)
    assert exact.exact
    assert exact.joined == int((gradients > 0).sum())
    wrong = gradients.clone()
    wrong[0, 0, 3, 9] = 1.0  # back in time
    wrong[3, 9, 0, 0] = wrong[3, 9, 0, 1] = 0.0
    held = agreement(wrong)
    assert (held.apart_with, held.joined_without, held.exact) == (1, 2, False)
    assert "Of the other pairs, 1 have" in str(held)


def test_a_cell_moves_itself_one_to_one(gradients):
    for layer in range(gradients.shape[0]):
        assert torch.allclose(gradients[layer, 3, layer, 3], torch.tensor(1.0))


def test_an_early_cell_is_paid_for_by_a_later_answer_but_not_by_its_own_row(gradients):
    early, late = Cell(0, 1), Cell(9, 3)
    assert gradients[late.layer, late.position, early.layer, early.position] > 0
    assert gradients[1, 9, early.layer, early.position] == 0


def test_a_later_loss_has_a_gradient_in_every_earlier_cell_but_none_in_the_top_row(random_model, chains):
    examples = chains.examples(2, seed=0)
    paid = loss_gradients(random_model, chains, examples)
    asked = int(examples.roles["query"].min())
    assert paid.shape == (random_model.cfg.n_layers + 1, chains.n_positions)
    assert (paid[:-1, :asked] > 0).all()
    assert (paid[-1, :asked] == 0).all()
    assert (paid[-1, asked:] > 0).all()


def test_the_same_seed_gives_the_same_gradients_and_leaves_the_model_alone(gradients, random_model, chains):
    again = cell_gradients(random_model, chains.examples(2, seed=0).inputs)
    assert torch.equal(again, gradients)
    assert all(parameter.grad is None for parameter in random_model.parameters())
    assert not any(point.fwd_hooks for point in random_model.hook_dict.values())


@pytest.mark.slow
def test_the_command_counts_the_pairs_and_shows_them(tmp_path, capsys):
    page = tmp_path / "gradients.html"
    with pytest.raises(SystemExit) as ended:
        main(["theory", "gradients", "induction", "--examples", "1", "--out", str(page), "--json"])
    assert ended.value.code == 0
    counted = json.loads(capsys.readouterr().out)
    # 12 positions, 3 cells each: every pair of positions in order, and each cell with itself.
    assert (counted["pairs"], counted["joined"]) == (36 * 36, 78 * 3 + 36)
    assert (counted["joined_without"], counted["apart_with"]) == (0, 0)
    with opened(page) as (shown, complaints):
        assert "270 of these have a nonzero gradient" in shown.locator("#verdict").inner_text()
        assert shown.locator("#gradients .heatmaplayer").count() == 1
        assert complaints == []


def test_the_command_takes_a_model_that_reads_tokens(untrained, tmp_path, capsys):
    page = tmp_path / "gradients.html"
    with pytest.raises(SystemExit) as ended:
        main(["theory", "gradients", str(untrained), "--examples", "1", "--out", str(page)])
    assert ended.value.code == 0
    assert "Of the other pairs, 0 have" in capsys.readouterr().out
    assert page.is_file()
