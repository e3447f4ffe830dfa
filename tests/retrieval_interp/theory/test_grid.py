from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput
from retrieval_interp.theory.grid import Cell, Grid

A1, B1, C1 = (Cell(position, 1) for position in range(3))
A2, B2, C2 = (Cell(position, 2) for position in range(3))
E2 = Cell(4, 2)
PASS = Grid(n_prompt=5, n_layers=2)
grids = st.builds(Grid, st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))


def longest_path_by_search(grid):
    longest = {}
    for cell in grid.cells():
        longest[cell] = max((longest[below] + 1 for below in grid.reads(cell)), default=0)
    return max(longest.values())


def test_there_is_no_edge_to_the_right_only_to_the_right_and_up():
    assert A1 not in PASS.reads(B1)
    assert not PASS.reaches(A1, B1)
    assert A1 in PASS.reads(B2)


def test_c2_reads_the_row_below_it_up_to_its_own_position_and_no_more():
    assert PASS.reads(C2) == (A1, B1, C1)
    assert not PASS.reaches(A2, C2)
    assert not PASS.reaches(B2, C2)


def test_e2_is_reached_from_a0_in_many_ways_and_from_a1_in_one_unless_tokens_were_written():
    assert PASS.n_paths(A1, E2) == 1
    assert PASS.n_paths(Cell(0, 0), E2) == 5  # by way of A1, B1, C1, D1 or E1
    assert Grid(n_prompt=1, n_layers=2, n_written=4).n_paths(A1, E2) > 1


@given(st.integers(1, 6), st.integers(1, 5))
def test_the_number_of_ways_within_a_pass_is_a_binomial_coefficient(n_positions, n_layers):
    grid = Grid(n_positions, n_layers)
    top = Cell(n_positions - 1, n_layers)  # n - 1 steps to the right, spread over L layers
    assert grid.n_paths(Cell(0, 0), top) == comb(n_positions - 1 + n_layers - 1, n_layers - 1)


@given(st.integers(1, 30), st.integers(1, 4))
def test_within_a_pass_the_longest_path_is_the_number_of_layers_whatever_the_length(n_positions, n_layers):
    assert longest_path_by_search(Grid(n_positions, n_layers)) == n_layers


@given(grids)
def test_the_longest_path_by_closed_form_is_that_by_search(grid):
    assert grid.longest_path() == longest_path_by_search(grid)


@given(grids, st.data())
def test_a_cell_is_reached_if_and_only_if_there_is_a_way(grid, data):
    cells = st.sampled_from(list(grid.cells()))
    start, end = data.draw(cells), data.draw(cells)
    assert grid.reaches(start, end) == (grid.n_paths(start, end) > 0)


def test_positions_go_on_after_z():
    assert [str(Cell(position, 2)) for position in (0, 25, 26, 701, 702)] == ["A2", "Z2", "AA2", "ZZ2", "AAA2"]


@pytest.mark.parametrize("size", [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_a_grid_without_cells_is_refused(size):
    with pytest.raises(BadInput, match="expected at least one position"):
        Grid(*size)


@pytest.mark.parametrize("cell", [Cell(5, 0), Cell(0, 3), Cell(-1, 0)])
def test_a_cell_that_is_not_there_is_refused(cell):
    with pytest.raises(BadInput, match=f"cell {cell} does not exist; there are 5 positions and layers 0 to 2"):
        PASS.reaches(A1, cell)
