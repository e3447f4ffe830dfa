"""Probes: the layer after which each symbol can be read where it is asked, and the prediction of information flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Float

from circuits.flow.flow_check import FlowCheck
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly, torch, transformer_lens
from circuits.utils.progress import Progress, part_of, shown
from retrieval_interp.tasks.vectors import VectorTask
from retrieval_interp.theory.information_flow import layers_until
from retrieval_interp.training.curves import EMERGED

AT_ONCE = 256  # the number of examples in one forward pass
RIDGE = 1e-3  # the ridge penalty, relative to the mean variance of the residual stream
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
        from retrieval_interp.experiments.probe_page import probe_figure

        return probe_figure(self, flow, earliest or {})

    def table(self) -> pd.DataFrame:
        """Return one row for each readout and layer, with a column for each symbol; layer -1 is before layer 0."""
        rows = [
            {"readout": name, "layer": layer - 1, **dict(zip(self.symbols, errors.tolist(), strict=True))}
            for name in READOUTS
            for layer, errors in enumerate(getattr(self, name))
        ]
        return pd.DataFrame(rows)


def probe(
    model: transformer_lens.HookedTransformer,
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
    from sklearn.linear_model import Ridge

    device = next(model.parameters()).device
    fit_on, score_on = (task.examples(n_examples, own).to(device) for own in (seed, seed + 1))
    with shown(progress, "probing") as progress:
        fit_at = _streams(model, task, fit_on, part_of(progress, 0.0, 0.5))
        score_at = _streams(model, task, score_on, part_of(progress, 0.5, 1.0))
    lens, linear = (torch.empty(model.cfg.n_layers + 1, len(task.loss_components)) for _ in range(2))
    for role in task.output_roles:
        read = [place for place, symbol in enumerate(task.loss_components) if task.read_at[symbol] == role]
        fit_to, score_to = (each.targets[:, :, read].flatten(0, 1).flatten(1) for each in (fit_on, score_on))

        def errors(answers: torch.Tensor, wanted: torch.Tensor = score_to, n: int = len(read)) -> torch.Tensor:
            return (answers - wanted).square().unflatten(-1, (n, -1)).mean(dim=(0, 2)).cpu()

        with torch.no_grad():
            for layer, (before, after) in enumerate(zip(fit_at[role], score_at[role], strict=True)):
                lens[layer, read] = errors(model.unembed(model.ln_final(after[None]))[0])
                x = before.double().cpu()
                penalty = RIDGE * (x - x.mean(dim=0)).square().sum(dim=0).mean().item() + 1e-9
                fitted = Ridge(alpha=penalty).fit(x.numpy(), fit_to.double().cpu().numpy())
                predicted = torch.from_numpy(fitted.predict(after.double().cpu().numpy()))
                linear[layer, read] = errors(predicted.reshape(len(after), -1).to(score_to))
    return Probes(task.loss_components, lens, linear)


def possible_layers(task: VectorTask) -> dict[str, int | None]:
    """Return for every symbol the first layer after which a circuit could know it, by information flow, or None."""
    until = {symbol: layers_until(task.layout, role, symbol, causal=True) for symbol, role in task.read_at.items()}
    return {symbol: None if layers is None else layers - 1 for symbol, layers in until.items()}


def _streams(
    model: transformer_lens.HookedTransformer, task: VectorTask, examples: Examples, progress: Callable[[float], None]
) -> dict[str, Float[torch.Tensor, "layer read d_model"]]:
    """Return the residual stream at every output role, before the first layer and after each layer."""
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]
    # In the order of the targets.
    places = {role: examples.roles[role].sort(dim=1).values for role in task.output_roles}
    found: dict[str, list[torch.Tensor]] = {role: [] for role in places}
    for start in range(0, len(examples), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        with torch.no_grad():
            _, cache = model.run_with_cache(examples.inputs[part], names_filter=names)
        for role, at in places.items():
            rows = torch.arange(len(at[part]), device=at.device)[:, None]
            found[role].append(torch.stack([cache[name][rows, at[part]].flatten(0, 1) for name in names]))
        progress(min(1.0, (start + AT_ONCE) / len(examples)))
    return {role: torch.cat(streams, dim=1) for role, streams in found.items()}
