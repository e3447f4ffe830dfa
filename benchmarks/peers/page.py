"""The peers side by side as one offline page, with the curves.

    python -m benchmarks.peers.page [--ground-truth FILE] [--peers FILE] PAGE

The curves of a level are averages over its models: precision at every recall, the true positive rate at every false
positive rate, and faithfulness at every share of the heads.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.colors
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from sklearn.metrics import precision_recall_curve, roc_curve

from circuits.errors import BadInput
from circuits.figures.page import figure_element, render_page
from circuits.utils.files import read_text, write_atomically

DATA = Path(__file__).parents[2] / "data"
SHARES = np.linspace(0, 1, 101)
CLEARLY = 0.01  # a difference from which on a peer counts as better
COLOURS = plotly.colors.qualitative.Safe
FIGURES = {  # with 1 if higher is better
    "area": ("Area under the ROC curve", 1),
    "precision": ("Average precision", 1),
    "CPR": ("CPR", 1),
    "CMD": ("CMD", -1),
}
CURVES = {
    "roc": ("false positive rate", "true positive rate"),
    "precision": ("recall", "precision"),
    "faithfulness": ("share of the heads", "faithfulness"),
}
Curve = Float[np.ndarray, " share"]


def curve(kind: str, row: dict[str, Any]) -> Curve:
    """Return a model's curve at shares from 0 to 1: ``roc``, ``precision`` (by recall), or ``faithfulness``."""
    if kind == "faithfulness":
        return np.interp(SHARES, np.linspace(0, 1, len(row["faithfulness"])), row["faithfulness"])
    true, scores = [head in row["true"] for head in row["scores"]], [*row["scores"].values()]
    if kind == "roc":
        wrong, right, _ = roc_curve(true, scores, drop_intermediate=False)
        return np.array([np.interp(share, wrong, right) if share else right[wrong == 0].max() for share in SHARES])
    precision, recall, _ = precision_recall_curve(true, scores)
    return np.array([precision[recall >= share - 1e-9].max() for share in SHARES])


def figure(kind: str, rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Draw the curves of all methods: one panel for each level."""
    levels, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("level", "method"))
    n_rows = -(-len(levels) // 5)
    drawn = make_subplots(n_rows, min(5, len(levels)), subplot_titles=levels, shared_xaxes=True, shared_yaxes=True)
    for place, level in enumerate(levels):
        for number, method in enumerate(methods):
            own = [curve(kind, row) for row in rows if (row["level"], row["method"]) == (level, method)]
            line = go.Scatter(
                x=SHARES, y=np.mean(own, axis=0).round(4), mode="lines", name=method, legendgroup=method,
                line={"color": COLOURS[number], "width": 3 if method == "discovery" else 1.5},
                showlegend=place == 0, hovertemplate=f"{method}: %{{y:.2f}}<extra></extra>",
            )  # fmt: skip
            drawn.add_trace(line, row=place // 5 + 1, col=place % 5 + 1)
    across, up = CURVES[kind]
    drawn.update_xaxes(title_text=across, row=n_rows)
    drawn.update_yaxes(title_text=up, col=1)
    return drawn.update_layout(template="plotly_white", height=120 + 230 * n_rows, margin={"t": 50, "b": 60})


def better(levels: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return first where peers are better than discovery by 0.01 or more, then what each method costs, in sentences."""
    ahead, behind = [], []
    for key, (name, sign) in FIGURES.items():
        texts = []
        for level, methods in levels.items():
            own = methods["discovery"][key]
            peers = [f"{name} {one[key]:.3f}" for name, one in methods.items() if sign * (one[key] - own) >= CLEARLY]
            if peers:
                texts.append(f"{', '.join(peers)} on {level} (discovery {own:.3f})")
        where = f"{name}, better than discovery by {CLEARLY} or more: {'; '.join(texts) or 'no peer on any level'}."
        (ahead if texts else behind).append(where)
    methods = next(iter(levels.values()))
    costs = {method: np.mean([level[method]["sequences"] for level in levels.values()]) for method in methods}
    cheapest_first = sorted(costs.items(), key=lambda item: item[1])
    cost = f"Sequences for a model: {', '.join(f'{method} {n:,.0f}' for method, n in cheapest_first)}."
    return [*ahead, cost, *behind]


def _read(path: Path, *needed: str) -> dict[str, Any]:
    """Return the results of a benchmark whose models have some figures."""
    try:
        found = json.loads(read_text(path, "the results of a benchmark"))
        if missing := [key for key in needed if not all(key in row for row in found["models"])]:
            raise KeyError(missing[0])
        if not found["levels"]:
            raise ValueError("no level")
        return {**found, "command": found["command"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} has no results of a benchmark; expected a file in data/") from error


def write_page(peers: Path, ground_truth: Path, page: Path) -> None:
    """Write the page.

    Raises:
        BadInput: a file is missing or has no results, or the page cannot be written.
    """
    found, truth = _read(peers, "method", "true", "scores", "faithfulness"), _read(ground_truth, "carried")
    figures = {kind: figure_element(figure(kind, found["models"]), kind) for kind in CURVES}
    said = {"found": found, "truth": truth, "better": better(found["levels"]), "figures": figures}
    write_atomically(page, render_page("peers.html.jinja", "benchmarks", **said))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the HTML file to write")
    parser.add_argument("--peers", type=Path, default=DATA / "peers.json")
    parser.add_argument("--ground-truth", type=Path, default=DATA / "ground_truth.json")
    arguments = parser.parse_args()
    try:
        write_page(arguments.peers, arguments.ground_truth, arguments.page)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
