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
    predicted    what the circuit's paths predict (``circuits.interchange.predicted``)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.flow.fixed_paths import with_fixed_paths
from circuits.flow.flow_check import ROLE_EXAMPLES, LaidOut
from circuits.given import examples_of
from circuits.interchange.interchange_result import InterchangeResult, furthest
from circuits.interchange.predicted import predicted_accuracy
from circuits.interchange.variables import Interchangeable, Variable, couples
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.losses.sample import stream_seed
from circuits.model.batching import sequences_at_once
from circuits.model.kept_run import KeptRun, check_branching
from circuits.model.transformer import Transformer
from circuits.task import Examples
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
    if examples.roles.positions.shape[2] < 2:
        raise BadInput("every example has one instance only; expected at least two, which exchange a variable")
    check_branching(model, examples)
    roles, layers = examples.roles, range(model.cfg.n_layers + 1)
    names = tuple(name for name in roles.distinct if name not in roles.shared or roles.alone(name))
    partner, treated = couples(examples.roles, stream_seed(seed, "couples"))
    elsewhere = _random_positions(examples, treated, stream_seed(seed, "random positions"))
    shape = len(task.variables), len(layers), len(names) + 1, n_examples  # the last role is the random positions
    n_instances, n_components = partner.shape[1], len(task.loss_components)
    swapped, kept = torch.empty(*shape, n_components), torch.empty(*shape, n_instances, n_components)
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    parts = [slice(start, min(start + at_once, n_examples)) for start in range(0, n_examples, at_once)]
    unpatched, own = torch.empty(n_examples, n_components), torch.empty(n_examples, n_instances, n_components)
    with shown(progress, "interchange") as progress:
        for number, part in enumerate(parts):
            batch = _Batch(model, task, examples.take(part), partner[part], treated[part], elsewhere[part])
            unpatched[part], own[part] = batch.scores(batch.base.outputs)
            swapped[:, :, :, part], kept[:, :, :, part] = unpatched[part], own[part]
            for index, variable in enumerate(task.variables):
                for layer, role, scores in batch.patched(variable, names):
                    swapped[index, layer, role, part], kept[index, layer, role, part] = scores
                    if role < len(names) and names[role] in roles.shared:  # all instances are exchanged there
                        kept[index, layer, role, part] = torch.nan
                    done = (layer + 1) / len(layers)
                    progress((number + (index + done) / shape[0]) / len(parts))
    depends = [[name in variable.components for name in task.loss_components] for variable in task.variables]
    absent = ~torch.tensor(depends)[:, None, None, None]  # [variable, 1, 1, 1, component]
    swapped[:, :, -1, elsewhere[:, 0] < 0] = torch.nan
    accuracy, accuracy_error = _over_examples(swapped.masked_fill(absent, torch.nan))
    control, control_error = _over_examples(kept[:, :, :-1].nanmean(dim=4).masked_fill(absent, torch.nan))
    own_mean = own.nanmean(dim=1).nanmean(dim=0)
    by_label = None
    if has_few_labels(roles) and not control.isnan().all():
        *cell, component = furthest(own_mean, control)
        at = kept[tuple(cell)][..., component].to(roles.positions.device)  # [example, instance]
        by_label = ByLabel.of(
            over_labels(at.nan_to_num(), ~at.isnan(), roles), roles, {one.role for one in task.variables}
        )
    return InterchangeResult(
        variables=tuple(task.variables),
        roles=names,
        components=task.loss_components,
        n_examples=n_examples,
        accuracy=accuracy[:, :, :-1],
        standard_error=accuracy_error[:, :, :-1],
        random=accuracy[:, :, -1],
        random_standard_error=accuracy_error[:, :, -1],
        control=control,
        control_standard_error=control_error,
        control_by_label=by_label,
        unpatched=unpatched.nanmean(dim=0),
        own=own_mean,
        predicted=None if circuit is None else _predicted(circuit, task, names, model.cfg.n_layers),
    )


def _over_examples(
    each: Float[Tensor, "variable layer role example component"],
) -> tuple[Float[Tensor, "variable layer role any"], Float[Tensor, "variable layer role any"]]:
    """Return the mean over examples and its standard error for every component, and for their mean, the last entry."""
    each = torch.cat([each, each.nanmean(dim=-1, keepdim=True)], dim=-1).double()
    mean, n = each.nanmean(dim=3), (~each.isnan()).sum(dim=3)
    spread = ((each - mean.unsqueeze(3)).square().nansum(dim=3) / (n - 1)).sqrt()
    return mean.float(), (spread / n.sqrt()).float()


def _predicted(
    circuit: Circuit, task: Interchangeable, names: Sequence[str], n_layers: int
) -> Float[Tensor, "variable layer role component"]:
    """Return the accuracy that the circuit's paths predict, with those of its fixed patterns.

    Raises:
        BadInput: the task has no layout.
    """
    if not isinstance(task, LaidOut):
        raise BadInput(f"{type(task).__name__} has no layout; only with it does a circuit predict anything")
    paths = with_fixed_paths(circuit, examples_of(task, ROLE_EXAMPLES, 0).roles)
    laid = task.layout, task.read_at, names
    return torch.tensor([predicted_accuracy(paths, *laid, variable, n_layers) for variable in task.variables])


class _Batch:
    """Some examples, their kept run, and the two instances of each that are exchanged.

    Attributes:
        base: the run on the examples as they are.
    """

    def __init__(
        self,
        model: Transformer,
        task: Interchangeable,
        examples: Examples,
        partner: Int[Tensor, "batch instance"],
        treated: Bool[Tensor, "batch instance"],
        elsewhere: Int[Tensor, "batch 2"],
    ) -> None:
        self.model, self.task, self.examples, self.partner, self.treated = model, task, examples, partner, treated
        self.elsewhere = elsewhere
        self.base = KeptRun.of(model, examples)

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
        partners, own = nearest.gather(-1, whose)[..., 0], nearest.diagonal(dim1=1, dim2=3).transpose(1, 2)
        given = partners.masked_fill(~self.treated[..., None], torch.nan).nanmean(dim=1)
        return given.cpu(), own.masked_fill(self.treated[..., None], torch.nan).cpu()

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
