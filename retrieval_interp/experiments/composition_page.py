"""How the heads of a circuit find their place, as one offline page with its tables."""

from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.checks.self_consistency_result import ENOUGH
from circuits.circuit import Circuit
from circuits.composition.edges import CARRIED, FOLLOWED
from circuits.figures.diagram import circuit_diagram
from circuits.interchange.interchange_figure import interchange_figure
from circuits.mlps.mlp_report import INSTEAD, MLPReport
from circuits.roles import Roles
from retrieval_interp.experiments.composition_study import CompositionStudy
from retrieval_interp.probes.probe_page import role_figure
from retrieval_interp.results import write_results

TITLES = {"mean": "the MLP's mean instead", "linear": "the best linear map instead"}


def mlp_figure(report: MLPReport) -> go.Figure:
    """Draw the losses with one MLP replaced: layers upwards, roles across, one heat map for each replacement."""
    figure = make_subplots(
        1, len(INSTEAD), subplot_titles=[*TITLES.values()], shared_yaxes=True, horizontal_spacing=0.03
    )
    layers = [layer for layer in dict.fromkeys(own.layer for own in report.losses) if layer is not None]
    roles = list(dict.fromkeys(own.role for own in report.losses if own.layer is not None))
    for column, instead in enumerate(INSTEAD, start=1):
        losses = [[report.loss(layer, role, instead).mean for role in roles] for layer in layers]
        heat = go.Heatmap(
            z=losses, x=[role or "all positions" for role in roles], y=[*map(str, layers)], coloraxis="coloraxis",
            hovertemplate="layer %{y}, %{x}: loss %{z:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
    figure.update_yaxes(title_text="layer", type="category", col=1)
    figure.update_yaxes(type="category")
    return figure.update_layout(
        coloraxis={"colorscale": "Oranges", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "loss"}}},
        template="plotly_white", height=150 + 24 * len(layers), margin={"t": 40, "b": 60},
    )  # fmt: skip


def write_composition(
    study: CompositionStudy, circuit: Circuit, roles: Roles, n_layers: int, name: str, folder: Path, command: str
) -> Path:
    """Write the tables and the page, and return the path of the page.

    Args:
        study: the measurements.
        circuit: the circuit.
        roles: the roles of some examples.
        n_layers: the number of layers of the model.
        name: the name of the model.
        folder: the folder for the files.
        command: the command that made them.

    Raises:
        BadInput: the folder cannot be written.
    """
    figures = {"edges": circuit_diagram(circuit, roles, n_layers, composition=study.edges)}
    if study.interchange:
        figures["interchange"] = interchange_figure(study.interchange)
        if not study.interchange.control[..., :-1].isnan().all():
            figures["control"] = interchange_figure(study.interchange, control=True)
    if study.mlps:
        figures["mlps"] = mlp_figure(study.mlps)
    if study.probes:
        figures["probes"] = role_figure(study.probes)
    tables = {name: table.round(5) for name, table in study.tables().items()}
    thresholds = {"followed": FOLLOWED, "carried": CARRIED, "enough": ENOUGH}
    return write_results(folder, "composition", command, tables, figures, name=name, study=study, **thresholds)
