"""The plotly figures of the explorer: the losses, and the average attention of a head."""

from collections.abc import Sequence
from typing import Any

import traitlets

from circuits.losses.loss import Loss
from circuits.utils.plotting import PLOTLY_CONFIG, go

INK, GRID = "#767676", "rgba(128, 128, 128, 0.3)"  # readable on white and on black
CLEAR = "rgba(0, 0, 0, 0)"
BARS = {"unablated": ("#8a8a8a", ""), "with the circuit": ("#0072B2", "/")}  # colour and pattern


class Panel(go.FigureWidget):
    """A figure with ``PLOTLY_CONFIG`` from the first moment: a browser that draws it at once has no other to read."""

    _config = traitlets.Dict(PLOTLY_CONFIG).tag(sync=True)

    @traitlets.validate("_config")
    def _keep_config(self, _: Any) -> dict[str, bool]:
        return PLOTLY_CONFIG


def loss_panel(components: Sequence[str]) -> Panel:
    """Return bars without numbers: the unablated loss and the circuit's, on average and for each component."""
    bars = [
        go.Bar(
            x=["mean", *components], marker={"color": colour, "pattern": {"shape": shape}}, constraintext="none",
            textposition="outside", textfont={"size": 10}, cliponaxis=False,
        )
        for colour, shape in BARS.values()
    ]  # fmt: skip
    y = {"rangemode": "tozero", "title": {"text": "loss"}, "gridcolor": GRID, "zerolinecolor": GRID}
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return _panel(bars, yaxis=y, barmode="group", bargap=0.1, legend=legend, height=240)


def show_losses(panel: Panel, losses: Sequence[Loss]) -> None:
    """Give the bars their numbers: the unablated loss and the circuit's."""
    with panel.batch_update():
        for bar, name, loss in zip(panel.data, BARS, losses, strict=True):
            values = [loss.mean, *loss.components.values()]
            name = f"{name}, {loss.n_examples:,} examples"
            bar.update(y=values, text=[f"{value:.3f}" for value in values], name=name)


def attention_panel(roles: Sequence[str]) -> Panel:
    """Return an empty heat map: the attention of a head from role (down) to role (across)."""
    shade = {"colorscale": "Blues", "zmin": 0, "zmax": 1, "showscale": False}
    heat = go.Heatmap(x=roles, y=roles, texttemplate="%{z:.2f}", **shade)
    return _panel([heat], yaxis={"autorange": "reversed"}, height=330)


def _panel(traces: Sequence[Any], **layout: Any) -> Panel:
    """Return a figure that is readable on white and on black."""
    plain = {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "font": {"color": INK}, "title": {"font": {"size": 13}}}
    size = {"width": 400, "margin": {"t": 40, "b": 40, "l": 80, "r": 10}}
    return Panel(traces, {**plain, **size, **layout})
