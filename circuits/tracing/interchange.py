"""Interchange interventions (Geiger et al. 2021): which variable passes through which role, after which layer.

Two instances of an example exchange one variable: in the *source*, each has the other's input at the variable's role.
The *base* is the example as it is. The model runs on the base, with the residual stream at one role of the two
instances, after one layer, taken from its run on the source. If this role carries the variable towards the answers
there, both instances now give each other's answers, for all components that depend on the variable. The share that do
is the *interchange accuracy*.

    unpatched    the same share without any intervention
    random       the same with the residual stream at two random positions, at which neither instance has a role. It
                 should be as without any intervention.
    control      the other instances of the same runs. In the source they exchange the variable, too, but nothing of
                 theirs is put into the base. They keep their own answers, unless instances read each other. There is
                 none at a role that all instances share.
    predicted    what the circuit's paths predict (circuits/flow/predicted.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.flow.fixed_paths import with_fixed_paths
from circuits.flow.flow_check import ROLE_EXAMPLES
from circuits.flow.predicted import predicted_accuracy
from circuits.given import examples_of
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.losses.loss import Mean
from circuits.losses.sample import stream_seed
from circuits.model.kept_run import KeptRun, check_branching
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.roles import Roles
from circuits.task import Examples, Interchangeable, LaidOut, Variable
from circuits.tracing.interchange_result import RANDOM, Cell, InterchangeResult
from circuits.utils.progress import Progress, shown

TIE = 1e-6  # distances that differ by less, relative to the largest, are equal


@entrance
def interchange(
    model: Transformer,
    task: Interchangeable,
    *,
    circuit: Circuit | None = None,
    n_examples: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> InterchangeResult:
    """Exchange every variable at every role, before the first layer and after each layer.

    The attention is the model's own. A role that an exchange does not change before a layer is not run there.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: its task, which is ``Interchangeable``, with at least two instances in every example.
        circuit: a circuit whose predictions to compare; the task then needs a layout.
        n_examples: the number of examples; in each of them, two instances are exchanged.
        seed: the seed of the examples and of the choice of the instances.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the task has no high-level model or only one instance in an example, or the examples have padding;
            the model cannot be run block by block, or the circuit does not fit.
    """
    examples = examples_of(task, n_examples, stream_seed(seed, "interchange"), next(model.parameters()).device)
    roles, layers = examples.roles, range(-1, model.cfg.n_layers)
    if roles.positions.shape[2] < 2:
        raise BadInput("every example has one instance only; expected at least two, which exchange a variable")
    check_branching(model, examples)
    names = tuple(name for name in roles.distinct if name not in roles.shared or roles.alone(name))
    predicted = {} if circuit is None else _predicted(circuit, task, names, model.cfg.n_layers)
    partner, treated = couples(roles, stream_seed(seed, "couples"))
    elsewhere = _random_positions(examples, treated, stream_seed(seed, "random positions"))
    places = len(task.variables), len(layers), len(names) + 1  # the last role is the random positions
    n_instances, components = partner.shape[1], task.loss_components
    unpatched = torch.empty(n_examples, len(components))
    unpatched_control = torch.empty(n_examples, n_instances, len(components))
    swapped, kept = torch.empty(*places, *unpatched.shape), torch.empty(*places, *unpatched_control.shape)
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    parts = [slice(start, min(start + at_once, n_examples)) for start in range(0, n_examples, at_once)]
    with shown(progress, "interchange") as progress:
        for number, part in enumerate(parts):
            batch = _Batch(model, task, examples.take(part), partner[part], treated[part], elsewhere[part])
            unpatched[part], unpatched_control[part] = batch.scores(batch.base.outputs)
            swapped[:, :, :, part], kept[:, :, :, part] = unpatched[part], unpatched_control[part]
            for index, variable in enumerate(task.variables):
                for layer, role, scores in batch.patched(variable, names):
                    swapped[index, layer, role, part], kept[index, layer, role, part] = scores
                    if role < len(names) and names[role] in roles.shared:  # all instances are exchanged there
                        kept[index, layer, role, part] = torch.nan
                    progress((number + (index + (layer + 1) / len(layers)) / places[0]) / len(parts))
    swapped[:, :, -1, elsewhere[:, 0] < 0] = torch.nan
    control = kept.nanmean(dim=4)
    control[:, :, -1] = torch.nan
    cells = {}
    for at in product(*map(range, places), range(len(components))):
        *place, index = at
        variable, component = task.variables[at[0]], components[index]
        if component in variable.components:
            others = Mean.of(control[*place][:, index])
            cells[at] = Cell(
                variable=variable.name,
                layer=layers[at[1]],
                role=(*names, RANDOM)[at[2]],
                component=component,
                accuracy=Mean.of(swapped[*place][:, index]),
                control=others if others.n_examples else None,
                predicted=predicted.get((*at[:3], component)),
            )
    alone = unpatched_control.nanmean(dim=1).nanmean(dim=0)
    result = InterchangeResult(
        variables=tuple(task.variables),
        n_examples=n_examples,
        cells=tuple(cells.values()),
        unpatched=dict(zip(components, unpatched.nanmean(dim=0).tolist(), strict=True)),
        unpatched_control=dict(zip(components, alone.tolist(), strict=True)),
        control_by_label=None,
    )
    if result.furthest is None or not has_few_labels(roles):
        return result
    *place, index = next(at for at, cell in cells.items() if cell is result.furthest)
    each = kept[*place][..., index].to(roles.positions.device)  # [example, instance]
    split = over_labels(each.nan_to_num(), ~each.isnan(), roles)
    by_label = ByLabel.of(split, roles, {variable.role for variable in task.variables})
    return result.model_copy(update={"control_by_label": by_label})


def couples(roles: Roles, seed: int) -> tuple[Int[Tensor, "batch instance"], Bool[Tensor, "batch instance"]]:
    """Pair up the instances of every example at random.

    Args:
        roles: the roles of the examples.
        seed: the seed of the choice.

    Returns:
        every instance's partner, which is itself for an odd one out; and whether it belongs to the first couple.
    """
    n, n_instances = len(roles), roles.positions.shape[2]
    order = torch.rand(n, n_instances, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    place = order.argsort(dim=1)  # of every instance in the order
    beside = place ^ 1  # 0 and 1, 2 and 3, and so on
    partner = order.gather(1, torch.where(beside < n_instances, beside, place))
    return partner.to(roles.positions.device), (place < 2).to(roles.positions.device)


def _predicted(
    circuit: Circuit, task: Interchangeable, names: Sequence[str], n_layers: int
) -> dict[tuple[int | str, ...], float]:
    """Return the accuracy that the circuit's paths predict, with those of its fixed patterns, by the place of a cell.

    Raises:
        BadInput: the task has no layout.
    """
    if not isinstance(task, LaidOut):
        raise BadInput(f"{type(task).__name__} has no layout; only with it does a circuit predict anything")
    paths = with_fixed_paths(circuit, examples_of(task, ROLE_EXAMPLES, 0).roles)
    return {
        (index, *place): share
        for index, variable in enumerate(task.variables)
        for place, share in predicted_accuracy(paths, task, names, variable, n_layers).items()
    }


@dataclass(frozen=True)
class _Batch:
    """Some examples, every instance's partner, the two that are exchanged, and two random positions."""

    model: Transformer
    task: Interchangeable
    examples: Examples
    partner: Int[Tensor, "batch instance"]
    treated: Bool[Tensor, "batch instance"]
    elsewhere: Int[Tensor, "batch 2"]

    @cached_property
    def base(self) -> KeptRun:
        """The run on the examples as they are."""
        return KeptRun.of(self.model, self.examples)

    def scores(
        self, outputs: Float[Tensor, "batch pos d_out"]
    ) -> tuple[Float[Tensor, "batch component"], Float[Tensor, "batch instance component"]]:
        """Return the share of treated instances with their partner's answer, and which others have their own."""
        distances = self.task.distances(outputs, self.examples)
        unasked, distances = distances.isnan(), distances.nan_to_num()
        nearest = (distances - distances.amin(dim=-1, keepdim=True) <= TIE * distances.abs().amax()).float()
        nearest = nearest / nearest.sum(dim=-1, keepdim=True)  # [batch, instance, component, candidate]
        nearest = nearest.masked_fill(unasked, torch.nan)
        whose = self.partner[..., None, None].expand(*nearest.shape[:-1], 1)
        partners, kept = nearest.gather(-1, whose)[..., 0], nearest.diagonal(dim1=1, dim2=3).transpose(1, 2)
        given = partners.masked_fill(~self.treated[..., None], torch.nan).nanmean(dim=1)
        return given.cpu(), kept.masked_fill(self.treated[..., None], torch.nan).cpu()

    def _exchanged(self, names: Sequence[str]) -> Iterator[Bool[Tensor, "batch pos"]]:
        """Yield the positions of the treated instances at every role, then the random positions."""
        roles, nowhere = self.examples.roles, torch.zeros(self.base.outputs.shape[:2], dtype=torch.bool)
        nowhere = nowhere.to(self.treated.device)
        for name in names:  # at a shared role, all instances are exchanged
            here = torch.ones_like(self.treated) if name in roles.shared else self.treated
            yield nowhere.scatter(1, roles[name], here)
        yield nowhere.scatter(1, self.elsewhere.clamp(min=0), self.elsewhere >= 0)

    def patched(
        self, variable: Variable, names: Sequence[str]
    ) -> Iterator[tuple[int, int, tuple[Float[Tensor, "batch component"], Float[Tensor, "batch instance component"]]]]:
        """Yield every layer and the index of every role at which the exchange changes anything, with the scores."""
        exchanged = [*self._exchanged(names)]
        swapped = self.task.exchanged(self.examples, variable.role, self.partner)
        source = KeptRun.of(self.model, replace(self.examples, inputs=swapped))
        for layer, (base, other) in enumerate(zip(self.base.residuals, source.residuals, strict=True)):
            differs = (base != other).any(dim=-1)
            for role, positions in enumerate(exchanged):
                here = positions & differs
                if here.any():
                    first = int(here.any(dim=0).nonzero()[0])
                    residual = torch.where(here[..., None], other, base)[None, :, first:]
                    yield layer, role, self.scores(self.base.continued(layer, residual)[0])


def _random_positions(examples: Examples, treated: Bool[Tensor, "batch instance"], seed: int) -> Int[Tensor, "batch 2"]:
    """Draw two positions of every example at which no treated instance has a role; -1 if there are fewer than two."""
    roles, n_positions = examples.roles, examples.inputs.shape[1]
    taken = ~roles.tokens(n_positions)
    for name in roles.names:
        taken = taken | torch.zeros_like(taken).scatter(1, roles[name], treated)
    drawn = torch.rand(taken.shape, generator=torch.Generator().manual_seed(seed)).to(taken.device)
    first = drawn.masked_fill(taken, 2.0).argsort(dim=1)[:, :2]
    return first.masked_fill(((~taken).sum(dim=1) < 2)[:, None], -1)
