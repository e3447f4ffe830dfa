"""Probes of all roles: what every position knows after each layer, of its own chain's symbols and places."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from jaxtyping import Bool, Float

from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import number_of_examples
from circuits.losses.loss import SURE
from circuits.losses.sample import stream_seed
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly, torch
from circuits.utils.progress import Progress, part_of, shown
from retrieval_interp.probes.linear_probe import fitted, predicted, streams
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import Task
from retrieval_interp.training.curves import EMERGED


@dataclass(frozen=True)
class RoleProbes:
    """The errors of linear probes at every role, before the first layer (row 0) and after each layer.

    An error is relative to that of guessing the mean: 1 says that nothing can be read, 0 that all can.

    Attributes:
        roles: the roles that are read at.
        pieces: what is read there: the symbols ``x0`` ... ``xD`` of the own chain, and the position codes of its query
            (``p0``) and its pairs (``p1`` ... ``pD``; that of the second member).
        errors: the errors on other examples than those of the fit.
        standard_errors: their standard errors, over examples.
        explained: the shares of the residual stream's variance that are linear in the symbols, and in the position
            codes. Both are of the own chain, so the rest may hold other chains.
        n_examples: the number of examples for the errors, and for the fit.
    """

    roles: tuple[str, ...]
    pieces: tuple[str, ...]
    errors: Float[torch.Tensor, "layer role piece"]
    standard_errors: Float[torch.Tensor, "layer role piece"]
    explained: Float[torch.Tensor, "layer role symbols_or_positions"]
    n_examples: int

    def knows(self, role: str) -> dict[str, list[tuple[int, int]]]:
        """Return for every piece that a role ever clearly knows the ranges of rows in which it does, first and last."""
        known = ((self.errors < EMERGED) & ~self.undecided)[:, self.roles.index(role)]
        found = {}
        for piece, rows in zip(self.pieces, known.T.tolist(), strict=True):
            runs = [[row for row, _ in run] for there, run in groupby(enumerate(rows), lambda one: one[1]) if there]
            if runs:
                found[piece] = [(run[0] - 1, run[-1] - 1) for run in runs]
        return found

    @property
    def undecided(self) -> Bool[torch.Tensor, "layer role piece"]:
        """Whether an error is within three standard errors of ``EMERGED``."""
        return (self.errors - EMERGED).abs() <= SURE * self.standard_errors

    def table(self) -> pd.DataFrame:
        """Return one row for each layer and role, with a column for each piece; layer -1 is before layer 0."""
        rows = []
        for row in range(len(self.errors)):
            for place, role in enumerate(self.roles):
                errors = dict(zip(self.pieces, self.errors[row, place].tolist(), strict=True))
                symbols, positions = self.explained[row, place].tolist()
                rows.append(
                    {"layer": row - 1, "role": role, **errors, "in_symbols": symbols, "in_positions": positions}
                )
        return pd.DataFrame(rows)

    def figure(self) -> plotly.graph_objects.Figure:
        """Draw one heat map of roles and layers for each piece."""
        from retrieval_interp.probes.probe_page import role_figure

        return role_figure(self)

    def sentences(self) -> tuple[str, ...]:
        """Say what each role comes to know, beyond its own input, and when."""
        last, said = len(self.errors) - 2, []
        for role in self.roles:
            runs = [
                f"{piece} {_layers(first, end, last)}"
                for piece, ranges in self.knows(role).items()
                for first, end in ranges
                if first >= 0
            ]
            said.append(f"{role} comes to know {', '.join(runs)}." if runs else f"{role} comes to know nothing more.")
        cells = [
            f"{self.pieces[piece]} at {self.roles[place]} {_layers(row - 1, row - 1, last)}"
            for row, place, piece in self.undecided.nonzero().tolist()
        ]
        if cells:
            said.append(f"Within three standard errors of {EMERGED:g}, so undecided: {', '.join(cells)}.")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, ``[layer][role][piece]``, and texts."""
        tensors = {name: getattr(self, name).tolist() for name in ("errors", "standard_errors", "explained")}
        names = {"roles": [*self.roles], "pieces": [*self.pieces], "examples": self.n_examples}
        return {**names, **tensors, "sentences": [*self.sentences()]}


def _layers(first: int, end: int, last: int) -> str:
    if end == -1:
        return "before layer 0"
    if end == last:
        return f"from layer {first} on"
    return f"after layer {first}" if first == end else f"after layers {first} to {end}"


@entrance
def probe_roles(
    model: Transformer,
    task: Task,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Progress | None = None,
) -> RoleProbes:
    """Read all symbols and places of the own chain at every role, after every layer, with linear probes.

    Args:
        model: a model trained on ``task``.
        task: the task.
        n_examples: the number of examples to score on; the regressions are fitted on as many others.
        seed: the seed of all examples.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: it is another task, or a number of examples is out of range.
    """
    if not isinstance(task, RetrievalTask):
        raise BadInput(
            f"{type(task).__name__}: expected the retrieval problem on vectors, in which every role is known"
        )
    number_of_examples(n_examples)
    device = next(model.parameters()).device
    fit_on, score_on = (
        task.examples(n_examples, stream_seed(seed, stream)).to(device) for stream in ("probe fit", "probe score")
    )
    at = {"x0": "query", **{variable.name: variable.role for variable in task.variables}}
    pieces = (*at, *(f"p{k}" for k in range(task.n_steps + 1)))
    shape = model.cfg.n_layers + 1, len(task.roles)
    errors, explained = torch.empty(*shape, len(pieces), n_examples), torch.empty(*shape, 2)
    fit_to, wanted = (_own_chain(task, examples, tuple(at.values())) for examples in (fit_on, score_on))
    guess = (wanted - wanted.mean(dim=(0, 1))).square().unflatten(-1, (len(pieces), -1)).mean(dim=(0, 1, 3))
    with shown(progress, "probing") as progress:
        fit_at, score_at = ({role: examples.roles[role] for role in task.roles} for examples in (fit_on, score_on))
        every = dict.fromkeys(task.roles, fit_to)
        moments = fitted(model, fit_on, fit_at, every, part_of(progress, 0.0, 0.5))
        for part, row, role, residual in streams(model, score_on, score_at, part_of(progress, 0.5, 1.0)):
            apart = (predicted(moments[row, role], residual) - wanted[part]).square().unflatten(-1, (len(pieces), -1))
            errors[row, task.roles.index(role), :, part] = (apart.mean(dim=(1, 3)) / guess).T.float()
        half = len(at) * task.n_dims
        for (row, role), own in moments.items():
            shares = own.explained(slice(0, half)), own.explained(slice(half, 2 * half))
            explained[row, task.roles.index(role)] = torch.tensor(shares)
    spread = errors.std(dim=-1) / n_examples**0.5
    return RoleProbes(task.roles, pieces, errors.mean(dim=-1), spread, explained, n_examples)


def _own_chain(
    task: RetrievalTask, examples: Examples, roles: tuple[str, ...]
) -> Float[torch.Tensor, "example chain target"]:
    """Return the inputs of every chain at some roles: first all symbols, then all position codes."""
    example = torch.arange(len(examples), device=examples.inputs.device)[:, None]
    inputs = torch.stack([examples.inputs[example, examples.roles[role]] for role in roles], dim=2)
    return torch.cat([own.flatten(2) for own in inputs.split(task.n_dims, dim=-1)], dim=-1).double().cpu()
