"""Linear probes: ridge regressions from the residual stream at some roles, after every layer, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int

from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import torch
from circuits.utils.progress import Progress

AT_ONCE = 256  # the number of examples in one forward pass
RIDGE = 1e-3  # the ridge penalty, relative to the mean variance of the residual stream


@dataclass
class Moments:
    """Moments of the residual stream at one role after one layer, and of what to read there; sums over rows.

    Attributes:
        d_model: the width of the residual stream; the columns after it are what to read.
        n: the number of rows.
        total: the sum of the rows.
        products: the sum of the products of two columns.
    """

    d_model: int
    n: int = 0
    total: Float[torch.Tensor, " column"] | float = 0.0
    products: Float[torch.Tensor, "column column"] | float = 0.0

    def add(self, residual: Float[torch.Tensor, "row d_model"], wanted: Float[torch.Tensor, "row target"]) -> None:
        """Add rows."""
        rows = torch.cat([residual, wanted], dim=1).double().cpu()
        self.n, self.total, self.products = (
            self.n + len(rows),
            self.total + rows.sum(dim=0),
            self.products + rows.T @ rows,
        )

    @property
    def mean(self) -> Float[torch.Tensor, " column"]:
        """The mean of the rows."""
        return torch.as_tensor(self.total) / self.n

    @property
    def covariance(self) -> Float[torch.Tensor, "column column"]:
        """The covariance of the columns."""
        return torch.as_tensor(self.products) / self.n - torch.outer(self.mean, self.mean)

    def ridge(self) -> Float[torch.Tensor, "d_model target"]:
        """Return the weights of the ridge regression of what to read on the residual stream."""
        gram, cross = self.covariance[: self.d_model].tensor_split([self.d_model], dim=1)
        penalty = RIDGE * gram.diagonal().mean() + 1e-12
        return torch.linalg.solve(gram + penalty * torch.eye(self.d_model, dtype=gram.dtype), cross)

    def explained(self, targets: slice) -> float:
        """Return the share of the residual stream's variance that is linear in some of the targets."""
        covariance, own = self.covariance, slice(self.d_model + targets.start, self.d_model + targets.stop)
        inner, cross = covariance[own, own], covariance[own, : self.d_model]
        found = (cross * (torch.linalg.pinv(inner, hermitian=True, rtol=1e-6) @ cross)).sum()
        return (found / covariance.diagonal()[: self.d_model].sum().clamp(min=1e-12)).item()


def fitted(
    model: Transformer,
    examples: Examples,
    places: Mapping[str, Int[torch.Tensor, "example instance"]],
    wanted: Mapping[str, Float[torch.Tensor, "example instance target"]],
    progress: Progress,
) -> dict[tuple[int, str], Moments]:
    """Return the moments at every role, before the first layer (row 0) and after each layer."""
    found: dict[tuple[int, str], Moments] = {}
    for part, row, role, residual in streams(model, examples, places, progress):
        moments = found.setdefault((row, role), Moments(residual.shape[-1]))
        moments.add(residual.flatten(0, 1), wanted[role][part].flatten(0, 1))
    return found


def predicted(moments: Moments, residual: Float[torch.Tensor, "*rows d_model"]) -> Float[torch.Tensor, "*rows target"]:
    """Return what the ridge regression reads from the residual stream."""
    inner, outer = moments.mean.tensor_split([moments.d_model])
    return (residual.double().cpu() - inner) @ moments.ridge() + outer


def streams(
    model: Transformer,
    examples: Examples,
    places: Mapping[str, Int[torch.Tensor, "example instance"]],
    progress: Progress,
) -> Iterator[tuple[slice, int, str, Float[torch.Tensor, "example instance d_model"]]]:
    """Yield some examples, a row, a role, and the residual stream there.

    Row 0 is before the first layer, row l + 1 after layer l.
    """
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]
    for start in range(0, len(examples), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        with torch.no_grad():
            _, cache = model.run_with_cache(examples.inputs[part], names_filter=names)
        for row, name in enumerate(names):
            for role, at in places.items():
                example = torch.arange(len(at[part]), device=at.device)[:, None]
                yield part, row, role, cache[name][example, at[part]]
        progress(min(1.0, (start + AT_ONCE) / len(examples)))
