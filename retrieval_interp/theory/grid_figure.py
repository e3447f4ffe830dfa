"""A figure of a transformer's grid: cells A0 ... E2, and the cells that each one reads."""

import plotly.colors
import plotly.graph_objects as go

from retrieval_interp.theory.grid import Cell, Grid

READ, WRITTEN, REACHED = "#b0b0b0", plotly.colors.qualitative.Safe[1], plotly.colors.qualitative.Safe[0]


def grid_figure(grid: Grid, start: Cell) -> go.Figure:
    """Draw positions to the right and layers upwards; the cells that a path from ``start`` reaches are filled.

    Solid edges lead up, or up and to the right: a cell reads the row below. Dotted edges are tokens that are written
    and read again. Only they lead on from the top.

    Args:
        grid: the grid.
        start: the cell from which paths start.
    """
    figure = go.Figure()
    for written, colour, dash, name in ((False, READ, "solid", "reads"), (True, WRITTEN, "dot", "is written as")):
        x: list[float | None] = []
        y: list[float | None] = []
        for cell in grid.cells():
            for below in grid.reads(cell):
                if (below.layer > cell.layer) == written:
                    x += [below.position, cell.position, None]
                    y += [below.layer, cell.layer, None]
        if x:
            line = {"color": colour, "dash": dash, "width": 1.5}
            figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name=name, hoverinfo="skip"))
    cells = list(grid.cells())
    reached = [grid.reaches(start, cell) for cell in cells]
    figure.add_trace(
        go.Scatter(
            x=[cell.position for cell in cells],
            y=[cell.layer for cell in cells],
            mode="markers+text",
            text=[*map(str, cells)],
            marker={
                "size": 34,
                "color": [REACHED if filled else "white" for filled in reached],
                "line": {"color": "black", "width": [3 if cell == start else 1 for cell in cells]},
            },
            customdata=[grid.n_paths(start, cell) for cell in cells],
            hovertemplate=f"%{{text}}: %{{customdata}} paths from {start}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_xaxes(title_text="position", tickvals=[*range(grid.n_positions)], showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="layer", tickvals=[*range(grid.n_layers + 1)], showgrid=False, zeroline=False)
    longest = f"The longest path has {grid.longest_path()} edges"
    return figure.update_layout(
        title={"text": f"Prompt: {grid.n_prompt}, written: {grid.n_written}. Filled: reached from {start}. {longest}"},
        template="plotly_white",
        height=160 + 80 * (grid.n_layers + 1),
        margin={"t": 50},
        legend={"orientation": "h", "y": -0.3},
    )
