"""With which layer can each symbol be read where it is asked? Measured, beside what information flow predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float

from circuits.flow import layers_until
from circuits.lazy import pandas as pd
from circuits.lazy import torch, transformer_lens
from circuits.problem import Examples
from retrieval_interp.curves import EMERGED
from retrieval_interp.vectors import VectorTask

AT_ONCE = 256  # examples that are run at once
RIDGE = 1e-3  # of the mean variance of the residual stream


@dataclass(frozen=True)
class Arrival:
    """How well each symbol can be read from the residual stream where it is asked, at the query, layer by layer.

    A mean squared error of 1 is what guessing the mean makes, 0.5 counts as read.

    Attributes:
        parts: the symbols.
        own: with the model's own readout (final norm and unembedding), ``[layer, part]``; row 0 is before any layer.
        ridge: with a ridge regression fitted on one sample and scored on another, ``[layer, part]``.
    """

    parts: tuple[str, ...]
    own: Float[torch.Tensor, "layer part"]
    ridge: Float[torch.Tensor, "layer part"]

    def layers(self, readout: str) -> dict[str, int | None]:
        """For every symbol the first layer after which ``own`` or ``ridge`` reads it; -1 before any, None if never."""
        below = (getattr(self, readout) < EMERGED).T.tolist()
        return {part: row.index(True) - 1 if True in row else None for part, row in zip(self.parts, below, strict=True)}

    def table(self) -> pd.DataFrame:
        """One row for each readout and layer, a column for each symbol; layer -1 is before any."""
        rows = [
            {"readout": name, "layer": layer - 1, **dict(zip(self.parts, errors.tolist(), strict=True))}
            for name, own in (("own", self.own), ("ridge", self.ridge))
            for layer, errors in enumerate(own)
        ]
        return pd.DataFrame(rows)


def arrival(
    model: transformer_lens.HookedTransformer,
    task: VectorTask,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Arrival:
    """Read every symbol after every layer.

    Args:
        model: trained on ``task``.
        task: the problem.
        n_examples: to score on; the regression is fitted on as many others.
        seed: of the first sample; ``seed + 1`` is of the second.
        progress: is told the finished share, 0 to 1.
    """
    device = next(model.parameters()).device
    fit_on, score_on = (task.examples(n_examples, own).to(device) for own in (seed, seed + 1))
    fit_at = _streams(model, task, fit_on, lambda share: progress(share / 2))
    score_at = _streams(model, task, score_on, lambda share: progress((1 + share) / 2))
    own, ridge = (torch.empty(model.cfg.n_layers + 1, len(task.parts)) for _ in range(2))
    for role in task.readout:
        parts = [place for place, part in enumerate(task.parts) if task.read_at[part] == role]
        fit_to, score_to = (each.targets[:, :, parts].flatten(0, 1).flatten(1) for each in (fit_on, score_on))

        def errors(answers: torch.Tensor, wanted: torch.Tensor = score_to, n_parts: int = len(parts)) -> torch.Tensor:
            return (answers - wanted).square().unflatten(-1, (n_parts, -1)).mean(dim=(0, 2)).cpu()

        with torch.no_grad():
            for layer, (before, after) in enumerate(zip(fit_at[role], score_at[role], strict=True)):
                own[layer, parts] = errors(model.unembed(model.ln_final(after[None]))[0])
                ridge[layer, parts] = errors(_ridge(before, fit_to, after))
    return Arrival(task.parts, own, ridge)


def possible(task: VectorTask) -> dict[str, int | None]:
    """For every symbol the first layer with which any circuit could bring it, by information flow; None if none."""
    until = {part: layers_until(task.layout, role, part, causal=True) for part, role in task.read_at.items()}
    return {part: None if layers is None else layers - 1 for part, layers in until.items()}


def _streams(
    model: transformer_lens.HookedTransformer, task: VectorTask, examples: Examples, progress: Callable[[float], None]
) -> dict[str, Float[torch.Tensor, "layer read d_model"]]:
    """The residual stream wherever something is asked, by role, before any layer and after each."""
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]
    places = {role: examples.roles[role].sort(dim=1).values for role in task.readout}  # as the targets stand
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


def _ridge(
    fit_at: Float[torch.Tensor, "fitted d_model"],
    fit_to: Float[torch.Tensor, "fitted d_out"],
    at: Float[torch.Tensor, "scored d_model"],
) -> Float[torch.Tensor, "scored d_out"]:
    """Answers of a ridge regression with an intercept."""
    mean, offset = fit_at.mean(dim=0), fit_to.mean(dim=0)
    x, y = (fit_at - mean).double(), (fit_to - offset).double()
    gram = x.T @ x
    penalty = RIDGE * gram.diagonal().mean() + 1e-9
    weights = torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype, device=x.device), x.T @ y)
    return ((at - mean).double() @ weights).to(fit_to.dtype) + offset
