"""Probes: the layer after which each symbol can be read where it is asked, and the prediction of information flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int

from circuits.entrance import entrance
from circuits.flow.flow_check import FlowCheck
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly, torch
from circuits.utils.progress import Progress, part_of, shown
from retrieval_interp.probes.linear_probe import fitted, predicted, streams
from retrieval_interp.tasks.vectors import VectorTask
from retrieval_interp.theory.information_flow import layers_until
from retrieval_interp.training.curves import EMERGED

READOUTS = ("logit_lens", "linear_probe")


@dataclass(frozen=True)
class Probes:
    """The errors of reading each symbol from the residual stream where it is asked, layer by layer.

    The errors are mean squared errors. Guessing the mean scores 1. A symbol counts as read below 0.5.

    Attributes:
        symbols: the loss components.
        logit_lens: the errors with the model's own final norm and unembedding, ``[layer, symbol]``; row 0 is before the
            first layer.
        linear_probe: the errors of a ridge regression that is fitted on one sample and scored on another,
            ``[layer, symbol]``.
    """

    symbols: tuple[str, ...]
    logit_lens: Float[torch.Tensor, "layer symbol"]
    linear_probe: Float[torch.Tensor, "layer symbol"]

    def layers(self, readout: str) -> dict[str, int | None]:
        """Return for every symbol the first layer after which a readout reads it; -1 before layer 0, None if never."""
        below = (getattr(self, readout) < EMERGED).T.tolist()
        return {
            symbol: row.index(True) - 1 if True in row else None
            for symbol, row in zip(self.symbols, below, strict=True)
        }

    def plot(
        self, flow: FlowCheck | None = None, earliest: Mapping[str, int | None] | None = None
    ) -> plotly.graph_objects.Figure:
        """Draw one heat map for each readout, layer by symbol.

        Args:
            flow: the flow check of the model's circuit; a ring marks the layer that it predicts.
            earliest: the result of ``possible_layers``; a dot marks the first layer that information flow allows.
        """
        from retrieval_interp.probes.probe_page import probe_figure

        return probe_figure(self, flow, earliest or {})

    def table(self) -> pd.DataFrame:
        """Return one row for each readout and layer, with a column for each symbol; layer -1 is before layer 0."""
        rows = [
            {"readout": name, "layer": layer - 1, **dict(zip(self.symbols, errors.tolist(), strict=True))}
            for name in READOUTS
            for layer, errors in enumerate(getattr(self, name))
        ]
        return pd.DataFrame(rows)


@entrance
def probe(
    model: Transformer,
    task: VectorTask,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Progress | None = None,
) -> Probes:
    """Read every symbol after every layer, with a logit lens and a linear probe.

    Args:
        model: a model trained on ``task``.
        task: the task.
        n_examples: the number of examples to score on; the regression is fitted on as many others.
        seed: the seed of the examples for the fit; the examples for the score have ``seed + 1``.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.
    """
    device = next(model.parameters()).device
    fit_on, score_on = (task.examples(n_examples, own).to(device) for own in (seed, seed + 1))
    lens, linear = torch.zeros(2, model.cfg.n_layers + 1, len(task.loss_components))
    read = {
        role: [place for place, symbol in enumerate(task.loss_components) if task.read_at[symbol] == role]
        for role in task.output_roles
    }
    with shown(progress, "probing") as progress:
        moments = fitted(model, fit_on, *_asked(fit_on, read), part_of(progress, 0.0, 0.5))
        places, wanted = _asked(score_on, read)
        for part, row, role, residual in streams(model, score_on, places, part_of(progress, 0.5, 1.0)):
            with torch.no_grad():
                answers = model.unembed(model.ln_final(residual)), predicted(moments[row, role], residual)
            for errors, own in zip((lens, linear), answers, strict=True):
                apart = (own.cpu() - wanted[role][part].cpu()).square().unflatten(-1, (len(read[role]), -1))
                errors[row, read[role]] += apart.mean(dim=(1, 3)).sum(dim=0).float() / n_examples
    return Probes(task.loss_components, lens, linear)


def possible_layers(task: VectorTask) -> dict[str, int | None]:
    """Return for every symbol the first layer after which a circuit could know it, by information flow, or None."""
    until = {symbol: layers_until(task.layout, role, symbol, causal=True) for symbol, role in task.read_at.items()}
    return {symbol: None if layers is None else layers - 1 for symbol, layers in until.items()}


def _asked(
    examples: Examples, read: Mapping[str, list[int]]
) -> tuple[
    Mapping[str, Int[torch.Tensor, "example instance"]], Mapping[str, Float[torch.Tensor, "example instance target"]]
]:
    """Return the positions of every output role, in the order of the targets, and the symbols asked for there."""
    places = {role: examples.roles[role].sort(dim=1).values for role in read}
    return places, {role: examples.targets[:, :, symbols].flatten(2) for role, symbols in read.items()}
