"""Where MLPs are needed, and where a linear map would do as well.

One MLP at a time is replaced at the positions of one role, or at all positions, and then all MLPs at once. The
attention is the model's own. There are two replacements, both made on other examples than those of the losses:

    mean      the MLP's average output at each position
    linear    the mean, plus a linear map of the deviation of the MLP's input from its own mean at the position; a ridge
              regression, one for each role (and one for all positions, used at positions without a role)

If the loss stays low with the mean, nothing that the MLP computes from the symbols there is needed. If it stays low
with the linear map only, the MLP is needed, but not its nonlinearity.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, examples_of, losses_of, stream_seed
from circuits.losses.loss import Loss
from circuits.model.kept_run import KeptRun, check_branching
from circuits.model.layers import Layers
from circuits.model.layers import layers as opened_layers
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.results import Decision, Result
from circuits.task import Examples, Task
from circuits.tracing.numbers import below, table
from circuits.utils.lazy import pandas
from circuits.utils.progress import Progress, part_of, shown

INSTEAD = ("mean", "linear")  # what stands in the place of an MLP
Place = tuple[int | None, str | None, str]  # a layer and a role (None stands for all), and what stands in its place
UNABLATED: Place = (None, None, "")
Groups = dict[str | None, Bool[Tensor, "batch pos"]]  # positions by role; None stands for all
RIDGE = 1e-3  # the ridge penalty, relative to the mean variance of the MLP's input


class MLPLoss(Result):
    """The loss with an MLP replaced.

    Attributes:
        layer: its layer; None for the MLPs of all layers at once.
        role: the role at whose positions it is replaced; None for all positions.
        instead: ``mean`` or ``linear``.
        loss: the loss.
        added: the loss minus the unablated one, on the same examples.
        low: whether the loss is below the threshold; undecided within three standard errors.
    """

    layer: int | None
    role: str | None
    instead: str
    loss: Loss
    added: Loss
    low: Decision


class MLPReport(Result):
    """Where MLPs are needed.

    Attributes:
        unablated: the loss of the unablated model.
        losses: the losses with MLPs replaced.
        threshold: a loss below it counts as low.
    """

    unablated: Loss
    losses: tuple[MLPLoss, ...]
    threshold: float

    def table(self) -> pandas.DataFrame:
        """Return one row for every layer, role and replacement; ``all`` stands for all layers, or for all positions."""
        rows = table(self.losses).astype({"layer": "Int64"}).astype({"layer": object})
        return rows.fillna({"layer": "all", "role": "all"})


@entrance
def mlp_ablations(
    model: Transformer,
    task: Task,
    *,
    n_examples: int = 512,
    threshold: float = 0.05,
    seed: int = 0,
) -> MLPReport:
    """Replace the MLP of every layer, at every role and at all positions, and all MLPs at once.

    Args:
        model: any HookedTransformer or TransformerBridge with MLPs.
        task: its task; all examples have the same length.
        n_examples: the number of examples for the losses, and as many others for the means and the linear maps.
        threshold: a loss below it counts as low.
        seed: the seed of all examples.

    Raises:
        BadInput: the model has no MLPs or cannot be run block by block, the examples have padding, or a number is out
            of range.
    """
    layers = [layer for layer, block in enumerate(model.blocks) if getattr(block, "mlp", None)]
    if not layers:
        raise BadInput("the model has no MLPs; expected a model that is not attention-only")
    device, streams = next(model.parameters()).device, ("MLP fit", "MLP loss")
    fit_on, test_on = (examples_of(task, n_examples, stream_seed(seed, stream), device) for stream in streams)
    check_branching(model, fit_on)
    check_reading(model, task, test_on)
    with shown(None, "MLPs") as progress:
        stand_ins = _StandIns(model, layers, fit_on)
        progress(0.05)
        measured = _losses(model, task, test_on, stand_ins, part_of(progress, 0.05, 1.0))
    names, unablated = task.loss_components, measured.pop(UNABLATED)
    losses = []
    for (layer, role, instead), each in measured.items():
        loss, added = Loss.of(each, names), Loss.of(each - unablated, names)
        low = below(loss, threshold)
        losses.append(MLPLoss(layer=layer, role=role, instead=instead, loss=loss, added=added, low=low))
    return MLPReport(unablated=Loss.of(unablated, names), losses=tuple(losses), threshold=threshold)


def _losses(
    model: Transformer, task: Task, examples: Examples, stand_ins: _StandIns, progress: Progress
) -> dict[Place, Float[Tensor, "example component"]]:
    """Return the losses with every stand-in, by layer and role (None for all), and those of the unablated model."""
    measured: dict[Place, list[Tensor]] = {}
    parts = [*_parts(model, examples)]
    for number, part in enumerate(parts):
        run, opened, groups = KeptRun.of(model, part), opened_layers(model, part), _groups(part)
        measured.setdefault(UNABLATED, []).append(losses_of(task, run.outputs, part))
        for layer in stand_ins.layers:
            residual = run.residuals[layer].repeat(len(INSTEAD), 1, 1)
            for role, there in groups.items():
                replaced = partial(stand_ins.replaced, layer, groups if role is None else {role: there})
                first = int(there.any(dim=0).nonzero()[0])
                with torch.no_grad():
                    after = opened.block(layer, residual, mlp=replaced).unflatten(0, (len(INSTEAD), -1))[:, :, first:]
                for instead, outputs in zip(INSTEAD, run.continued(layer + 1, after), strict=True):
                    measured.setdefault((layer, role, instead), []).append(losses_of(task, outputs, part))
            progress((number + (layer + 1) / model.cfg.n_layers) / len(parts))
        for instead, outputs in zip(INSTEAD, stand_ins.run(opened, groups), strict=True):
            measured.setdefault((None, None, instead), []).append(losses_of(task, outputs, part))
    return {place: torch.cat(losses).cpu() for place, losses in measured.items()}


class _StandIns:
    """The mean inputs and outputs of MLPs at each position, and their linear maps, by layer and role."""

    @torch.no_grad()
    def __init__(self, model: Transformer, layers: list[int], examples: Examples) -> None:
        self.model, self.layers = model, layers
        sums: dict[int, list[Tensor]] = {}
        for part in _parts(model, examples):
            for layer, both in self._seen(part):
                sums.setdefault(layer, []).append(both.double().sum(dim=1))
        n = len(examples)
        self.means = {layer: torch.stack(each).sum(dim=0) / n for layer, each in sums.items()}  # [2, pos, d]
        moments: dict[tuple[int, str | None], Tensor] = {}
        for part in _parts(model, examples):
            for layer, both in self._seen(part):
                apart = both.double() - self.means[layer][:, None]
                for role, there in _groups(part).items():
                    into, out = apart[:, there]
                    moment = into.T @ torch.cat([into, out], dim=1)
                    moments[layer, role] = moments.get((layer, role), 0) + moment
        self.maps = {key: _ridge(moment) for key, moment in moments.items()}

    def _seen(self, examples: Examples) -> Iterator[tuple[int, Float[Tensor, "2 batch pos d_model"]]]:
        """Yield every layer that has an MLP with the MLP's input and output."""
        opened, seen = opened_layers(self.model, examples), []
        residual = opened.embed()

        def see(into: Tensor, out: Tensor) -> Tensor:
            seen.append(torch.stack([into, out]))
            return out

        for layer in range(self.model.cfg.n_layers):
            residual = opened.block(layer, residual, mlp=see if layer in self.layers else None)
            if seen:
                yield layer, seen.pop()

    def replaced(
        self, layer: int, groups: Groups, into: Float[Tensor, "run pos d_model"], out: Float[Tensor, "run pos d_model"]
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the outputs of an MLP in two runs of the same examples: the first with the mean, the second with maps.

        The map of a later group takes precedence. Positions in no group have the mean if there is a group of all
        positions, and else the MLP's own output.
        """
        mean_into, mean_out = self.means[layer].to(into.dtype)
        apart = into.unflatten(0, (len(INSTEAD), -1))[1] - mean_into
        moved = torch.zeros_like(apart)
        for role, there in groups.items():
            moved[there] = apart[there] @ self.maps[layer, role].to(into.dtype)
        anywhere = torch.stack([*groups.values()]).any(dim=0)[..., None]
        stand_ins = torch.cat([mean_out.expand_as(moved), mean_out + moved])
        return torch.where(anywhere.repeat(len(INSTEAD), 1, 1), stand_ins, out)

    @torch.no_grad()
    def run(self, opened: Layers, groups: Groups) -> Float[Tensor, "2 batch pos d_out"]:
        """Return the model's outputs with all MLPs replaced at all positions, by their means and by their maps."""
        residual = opened.embed().repeat(len(INSTEAD), 1, 1)
        for layer in range(self.model.cfg.n_layers):
            replaced = partial(self.replaced, layer, groups) if layer in self.layers else None
            residual = opened.block(layer, residual, mlp=replaced)
        return opened.read(residual.flatten(0, 1)).unflatten(0, (len(INSTEAD), -1, residual.shape[1]))


def _ridge(moment: Float[Tensor, "d_model both"]) -> Float[Tensor, "d_model d_model"]:
    """Return the ridge regression of centred outputs on centred inputs, from their second moments."""
    gram, cross = moment.tensor_split(2, dim=1)
    penalty = RIDGE * gram.diagonal().mean() + 1e-9
    return torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), cross)


def _groups(examples: Examples) -> Groups:
    """Return all positions, under None, and the positions of every role."""
    empty = torch.zeros(examples.inputs.shape[:2], dtype=torch.bool, device=examples.inputs.device)
    groups: Groups = {None: ~empty}
    return groups | {role: empty.scatter(1, examples.roles[role], True) for role in examples.roles.distinct}


def _parts(model: Transformer, examples: Examples) -> Iterator[Examples]:
    """Yield batches, half as large as usual because two stand-ins run at once."""
    at_once = max(1, sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1]) // 2)
    return (examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once))
