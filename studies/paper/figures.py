"""Draw the paper's figures 2, 4 to 7 and Appendix C for our models: ``python -m studies.paper.figures [NAME ...]``.

``figure4_circuits`` is ours: the circuits of figure 4's transformers that learn all five symbols.

The captions stand in README.md. It needs a Chromium. Of A to C, only models of another recipe solve the task so far.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly import express

from circuits import load_circuit
from circuits.attention import patterns
from circuits.figures.diagram import circuit_diagram
from retrieval_interp import Emergence, emergence, load
from retrieval_interp.llm.page import OPTIONS, accuracy_figure
from retrieval_interp.sweep.figure4 import figure4_figure
from studies.figures import take

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "data"
D = "transformer_d"
MODELS = {"A": "transformer_a", "B": "transformer_b", "C": "transformer_c", "D": D}
ANSWERS = {"smollm2_forced_choice": "SmolLM2, forced choice", "smollm2_sampled": "SmolLM2, sampled"}


def figure2() -> str:
    """The accuracy of SmolLM2 on the questions."""
    tables = [pd.read_csv(DATA / "language_models" / f"{file}.csv", comment="#") for file in ANSWERS]
    named = [table.assign(model=name) for table, name in zip(tables, ANSWERS.values(), strict=True)]
    rows = pd.concat(named, ignore_index=True).astype({"steps": "Int64"})
    rows = rows.assign(**dict.fromkeys(OPTIONS, 0))  # the names say how it was asked
    return html(accuracy_figure(rows).update_layout(legend_title_text=""), 1000, 420)


def figure4() -> str:
    """The last losses by number of layers."""
    wide = pd.read_csv(HERE / "table.csv", comment="#")
    wide = wide[wide["preset"].str.startswith("figure4") & wide["ended"]]
    rows = (
        wide.drop(columns="loss")
        .melt(["preset", "seed"], [f"x{k}_loss" for k in range(1, 6)], "symbol", "loss")
        .dropna(subset="loss")
    )
    figure = figure4_figure(rows.assign(symbol=rows["symbol"].str[:2]))
    top = max(1, 1.05 * rows["loss"].max())
    return html(figure.update_xaxes(range=(0.5, 8.5)).update_yaxes(range=(0, top)), 1000, 420)


def figure4_circuits() -> str:
    """The circuits of the transformers of figure 4 that have one."""
    found = {path.parent for path in (DATA / "paper").glob("figure4_*/circuit.yaml")}
    return element(*(f"<h2>{of_depth(own)} layers</h2>{diagram(str(own))}" for own in sorted(found)))


def of_depth(folder: Path) -> int:
    """The number of layers of a transformer of figure 4."""
    return int(folder.name.split("_")[2])


def figure5() -> str:
    """The circuits of A, B and C."""
    return element(*(f"<h2>{name}</h2>{diagram(MODELS[name])}" for name in "ABC"))


def figure6() -> str:
    """The losses of D over its training."""
    return html(along().plot("losses"), 1000, 400)


def figure7() -> str:
    """The circuit of D, and when each of its paths emerged."""
    return element(diagram(D), html(along().plot("emerged"), 1000, 420))


def appendix_c() -> str:
    """The attention of every head of A to D in one example."""
    return element(*map(maps, MODELS))


def maps(name: str) -> str:
    """One map for each head: rows attend, columns are attended to."""
    model, task, _ = load(MODELS[name])
    assert task is not None
    every = [pattern[0, 0].numpy() for *_, pattern in patterns(model, task.examples(1, seed=0))]
    shown = express.imshow(
        np.stack(every),
        facet_col=0, facet_col_wrap=6, zmin=0, zmax=1, color_continuous_scale="Blues", facet_col_spacing=0.01,
        facet_row_spacing=0.06 if len(every) < 20 else 0.03,
    )  # fmt: skip
    shown.for_each_annotation(lambda title: title.update(text=f"L{title.text.partition('=')[2]}H0"))
    shown.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False).update_layout(title=name)
    return html(shown.update_coloraxes(showscale=name == "A"), 1100, 120 + 175 * -(-len(every) // 6))


def along() -> Emergence:
    """The training of D, along the paths of its circuit."""
    return emergence(D, load_circuit(DATA / D / "circuit.yaml"))


def diagram(model: str) -> str:
    """The circuit of a model, as a picture."""
    _, task, circuit = load(model)
    assert task is not None
    assert circuit is not None
    return circuit_diagram(circuit, task.examples(1, seed=0).roles)._repr_html_()


def html(figure: go.Figure, width: int, height: int) -> str:
    """A figure as an element."""
    figure.update_layout(width=width, height=height, font_size=13)
    return str(figure.to_html(full_html=False))


def element(*parts: str) -> str:
    """Elements below each other."""
    style = "width: max-content; font-family: sans-serif"
    inside = "".join(f"<div>{part}</div>" for part in parts)  # captions stand in README.md
    return f'<div style="{style}"><style>figcaption {{ display: none }}</style>{inside}</div>'


DRAWN = (figure2, figure4, figure4_circuits, figure5, figure6, figure7, appendix_c)
FIGURES = {draw.__name__: draw for draw in DRAWN}

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        take(HERE / f"{name}.png", f"<!doctype html><meta charset=utf-8><body>{FIGURES[name]()}")
