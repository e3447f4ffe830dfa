"""At which layer can each symbol be read at the query? Measured, beside what information flow predicts."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.errors import BadInput
from circuits.problem import Examples
from retrieval_interp.emergence import EMERGED
from retrieval_interp.vectors import VectorTask

AT_ONCE = 256  # examples that are run at once
RIDGE = 1e-3  # of the mean variance of the residual stream


@dataclass(frozen=True)
class Arrival:
    """How well each symbol can be read from the residual stream at the query, layer by layer.

    A mean squared error of 1 is what guessing the mean makes, 0.5 counts as read.

    Attributes:
        parts: the symbols.
        own: with the model's own readout (final norm and unembedding), ``[layer, part]``; row 0 is before any layer.
        ridge: with a ridge regression fitted on one sample and scored on another, ``[layer, part]``.
    """

    parts: tuple[str, ...]
    own: Float[Tensor, "layer part"]
    ridge: Float[Tensor, "layer part"]

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


@torch.no_grad()
def arrival(
    model: HookedTransformer,
    task: VectorTask,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Arrival:
    """Read every symbol after every layer.

    Args:
        model: trained on ``task``.
        task: the problem; its answers are read at the queries.
        n_examples: to score on; the regression is fitted on as many others.
        seed: of the first sample; ``seed + 1`` is of the second.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: the answers of the task are not all read at the queries.
    """
    if task.readout != ("query",):
        raise BadInput(
            f"the answers are read at {', '.join(task.readout)}; expected a task that reads all at the query"
        )
    device = next(model.parameters()).device
    fit_on, score_on = (task.examples(n_examples, own).to(device) for own in (seed, seed + 1))
    fit_at, fit_to = _streams(model, fit_on, lambda share: progress(share / 2))
    score_at, score_to = _streams(model, score_on, lambda share: progress((1 + share) / 2))
    n_parts = len(task.parts)

    def errors(answers: Tensor) -> Tensor:
        return (answers - score_to).square().unflatten(-1, (n_parts, -1)).mean(dim=(0, 2)).cpu()

    own = [errors(model.unembed(model.ln_final(stream[None]))[0]) for stream in score_at]
    ridge = [errors(_ridge(before, fit_to, after)) for before, after in zip(fit_at, score_at, strict=True)]
    return Arrival(task.parts, torch.stack(own), torch.stack(ridge))


def _streams(
    model: HookedTransformer, examples: Examples, progress: Callable[[float], None]
) -> tuple[Float[Tensor, "layer query d_model"], Float[Tensor, "query d_out"]]:
    """The residual stream at every query, before any layer and after each, and what is asked there."""
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]
    at_query = examples.roles["query"].sort(dim=1).values  # targets stand in the order of the sequence
    found = []
    for start in range(0, len(examples), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        _, cache = model.run_with_cache(examples.inputs[part], names_filter=names)
        rows = torch.arange(len(at_query[part]), device=at_query.device)[:, None]
        found.append(torch.stack([cache[name][rows, at_query[part]].flatten(0, 1) for name in names]))
        progress(min(1.0, (start + AT_ONCE) / len(examples)))
    return torch.cat(found, dim=1), examples.targets.flatten(0, 1).flatten(1)


def _ridge(
    fit_at: Float[Tensor, "fitted d_model"], fit_to: Float[Tensor, "fitted d_out"], at: Float[Tensor, "scored d_model"]
) -> Float[Tensor, "scored d_out"]:
    """Answers of a ridge regression with an intercept."""
    mean, offset = fit_at.mean(dim=0), fit_to.mean(dim=0)
    x, y = (fit_at - mean).double(), (fit_to - offset).double()
    gram = x.T @ x
    penalty = RIDGE * gram.diagonal().mean() + 1e-9
    weights = torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype, device=x.device), x.T @ y)
    return ((at - mean).double() @ weights).to(fit_to.dtype) + offset
