from retrieval_interp.theory.grid import Cell, Grid
from retrieval_interp.theory.grid_figure import REACHED, grid_figure


def test_the_picture_has_every_edge_once_and_fills_what_a_path_leads_to():
    grid = Grid(n_prompt=2, n_layers=2, n_written=1)
    reads, written, cells = grid_figure(grid, Cell(0, 1)).data
    # Into layer 1 and into layer 2: one cell reads 1, one reads 2, one reads 3.
    assert len([x for x in reads.x if x is None]) == 2 * (1 + 2 + 3)
    assert [*zip(written.x, written.y, strict=True)] == [(1, 2), (2, 0), (None, None)]
    filled = {name for name, colour in zip(cells.text, cells.marker.color, strict=True) if colour == REACHED}
    assert filled == {"A1", "A2", "B2", "C0", "C1", "C2"}  # not B1: no edge leads only to the right
    assert cells.customdata[cells.text.index("C0")] == 1  # by way of B2


def test_without_written_tokens_there_is_nothing_dotted():
    assert [trace.name for trace in grid_figure(Grid(2, 1), Cell(0, 0)).data] == ["reads", None]
