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
from predicted import predicted_accuracy
from torch import Tensor

from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import examples_of, stream_seed
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.losses.loss import Mean
from circuits.model.layers import layers as opened_on
from circuits.model.transformer import Transformer, sequences_at_once, windowed
from circuits.results import Decision, Number, Result, table
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.lazy import pandas, plotly
from circuits.utils.progress import shown
from retrieval_interp.tasks.high_level import Interchangeable, Variable

TIE = 1e-6  # distances that differ by less, relative to the largest, are equal
RANDOM = "random position"  # in the place of a role


class Cell(Result):
    """One variable, exchanged at one role after one layer, and the answers to one loss component.

    Attributes:
        variable: the name of the variable.
        layer: the layer; -1 is before layer 0.
        role: the role, or ``random position``.
        component: the loss component; it depends on the variable.
        accuracy: the share of exchanged instances that give their partner's answer.
        control: the share of the other instances that keep their own answer; None without other instances.
        predicted: the accuracy that the paths of a circuit predict: 1, 0, or 1/2 if they do not decide; None without a
            circuit.
    """

    variable: str
    layer: int
    role: str
    component: str
    accuracy: Mean
    control: Mean | None
    predicted: Number | None

    @property
    def decision(self) -> Decision:
        """Whether the role carries the variable; undecided within three standard errors of ``carries``."""
        carried, accuracy = current().carries, self.accuracy
        return "undecided" if accuracy.near(carried) else "holds" if accuracy.mean >= carried else "fails"


class InterchangeResult(Result):
    """Interchange accuracies for every variable, layer, role and loss component.

    Attributes:
        variables: the variables that were exchanged.
        n_examples: the number of examples.
        cells: the accuracies; those at random positions are last in every layer.
        unpatched: for every component, the share of exchanged instances that give their partner's answer without any
            intervention.
        unpatched_control: for every component, the share of the other instances that give their own answer without any
            intervention.
        control_by_label: ``control`` at the cell ``furthest``, split by the main group.
    """

    variables: tuple[Variable, ...]
    n_examples: int
    cells: tuple[Cell, ...]
    unpatched: dict[str, Number]
    unpatched_control: dict[str, Number]
    control_by_label: ByLabel | None = None

    @property
    def furthest(self) -> Cell | None:
        """The cell whose control is furthest below ``unpatched_control``; None without a control."""
        below = [(self.unpatched_control[one.component] - one.control.mean, one) for one in self.cells if one.control]
        return max(below, key=lambda one: one[0], default=(0.0, None))[1]

    def table(self) -> pandas.DataFrame:
        """Return one row for every variable, layer, role and component."""
        return table(self.cells)

    def figure(self) -> plotly.graph_objects.Figure:
        """Draw a map of roles and layers for every variable, and every component that depends on it.

        Circles are cells in which the circuit's paths carry the variable, squares all others.
        """
        from plotly import express

        cells = self.table().assign(circuit=lambda cells: cells.predicted.eq(1).map({True: "carries", False: ""}))
        figure = express.scatter(
            cells, x="role", y="layer", color="accuracy", symbol="circuit", facet_row="variable", facet_col="component",
            symbol_map={"carries": "circle", "": "square"}, range_color=(0, 1), color_continuous_scale="Blues",
            hover_data=["control", "predicted"], template="plotly_white",
            height=120 + len(self.variables) * (80 + 18 * cells.layer.nunique()),
        )  # fmt: skip
        return figure.update_traces(marker={"size": 14}).update_layout(legend={"orientation": "h", "y": 1.1})


@entrance
def interchange(
    model: Transformer,
    task: Interchangeable,
    circuit: Circuit | None = None,
    *,
    n_examples: int = 256,
    seed: int = 0,
) -> InterchangeResult:
    """Exchange every variable at every role, before the first layer and after each layer.

    The attention is the model's own. A role that an exchange does not change before a layer is not run there.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: its task, which is ``Interchangeable``, with at least two instances in every example.
        circuit: a circuit whose predictions to compare; the task then needs a layout.
        n_examples: the number of examples; in each of them, two instances are exchanged.
        seed: the seed of the examples and of the choice of the instances.

    Raises:
        BadInput: the task has no high-level model or only one instance in an example, or the examples have padding;
            the model cannot be run block by block, or the circuit does not fit.
    """
    examples = examples_of(task, n_examples, stream_seed(seed, "interchange"), next(model.parameters()).device)
    roles, layers = examples.roles, range(-1, model.cfg.n_layers)
    if roles.positions.shape[2] < 2:
        raise BadInput("every example has one instance only; expected at least two, which exchange a variable")
    if roles.valid is not None:
        raise BadInput("the examples have padding; expected examples of the same length")
    names = tuple(name for name in roles.distinct if name not in roles.shared or roles.alone(name))
    if circuit is not None:
        circuit.check(windowed(model, roles), model.cfg.n_layers, model.cfg.n_heads)
    predicted = {} if circuit is None else predicted_accuracy(circuit, task, names, model.cfg.n_layers)
    partner, treated = couples(roles, stream_seed(seed, "couples"))
    elsewhere = _random_positions(examples, treated, stream_seed(seed, "random positions"))
    components, places = task.loss_components, (len(task.variables), len(layers), len(names) + 1)  # the last are random
    unpatched, unpatched_control = (torch.empty(*n, len(components)) for n in ((n_examples,), partner.shape))
    swapped, kept = torch.empty(*places, *unpatched.shape), torch.empty(*places, *unpatched_control.shape)
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    parts = [slice(start, min(start + at_once, n_examples)) for start in range(0, n_examples, at_once)]
    with shown(None, "interchange") as progress:
        for number, part in enumerate(parts):
            batch = _Batch(model, task, examples.take(part), partner[part], treated[part], elsewhere[part])
            unpatched[part], unpatched_control[part] = batch.scores(batch.outputs(len(batch.base) - 1, batch.base[-1]))
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
    for which, layer, role, place in product(*map(range, places), range(len(components))):
        if components[place] in task.variables[which].components:
            others = Mean.of(control[which, layer, role, :, place])
            cells[which, layer, role, place] = Cell(
                variable=task.variables[which].name,
                layer=layers[layer],
                role=(*names, RANDOM)[role],
                component=components[place],
                accuracy=Mean.of(swapped[which, layer, role, :, place]),
                control=others if others.n_examples else None,
                predicted=predicted.get((which, layer, role, components[place])),
            )
    alone = unpatched_control.nanmean(dim=1).nanmean(dim=0)
    result = InterchangeResult(
        variables=tuple(task.variables),
        n_examples=n_examples,
        cells=tuple(cells.values()),
        unpatched=dict(zip(components, unpatched.nanmean(dim=0).tolist(), strict=True)),
        unpatched_control=dict(zip(components, alone.tolist(), strict=True)),
    )
    if result.furthest is None or not has_few_labels(roles):
        return result
    number, layer, role, index = next(at for at, cell in cells.items() if cell is result.furthest)
    each = kept[number, layer, role, ..., index].to(roles.positions.device)  # [example, instance]
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
    def base(self) -> list[Float[Tensor, "batch pos d_model"]]:
        """The residual streams of the run on the examples as they are."""
        return residuals(self.model, self.examples)

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

    def patched(
        self, variable: Variable, names: Sequence[str]
    ) -> Iterator[tuple[int, int, tuple[Float[Tensor, "batch component"], Float[Tensor, "batch instance component"]]]]:
        """Yield every layer and the index of every role at which the exchange changes anything, with the scores."""
        roles, everyone = self.examples.roles, torch.ones_like(self.treated)
        nowhere = torch.zeros(self.base[0].shape[:2], dtype=torch.bool, device=everyone.device)
        whom = {name: everyone if name in roles.shared else self.treated for name in names}
        exchanged = [nowhere.scatter(1, roles[name], instances) for name, instances in whom.items()]
        exchanged.append(nowhere.scatter(1, self.elsewhere.clamp(min=0), self.elsewhere >= 0))
        swapped = self.task.exchanged(self.examples, variable.role, self.partner)
        source = residuals(self.model, replace(self.examples, inputs=swapped))
        for layer, (base, other) in enumerate(zip(self.base, source, strict=True)):
            differs = (base != other).any(dim=-1)
            for role, positions in enumerate(exchanged):
                here = positions & differs
                if here.any():
                    residual = torch.where(here[..., None], other, base)
                    yield layer, role, self.scores(self.outputs(layer, residual))

    @torch.no_grad()
    def outputs(self, layer: int, residual: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_out"]:
        """Return the outputs from the residual stream that enters a layer."""
        opened = opened_on(self.model, self.examples)
        for above in range(layer, self.model.cfg.n_layers):
            residual = opened.block(above, residual)
        return opened.read(residual.flatten(0, 1)).unflatten(0, residual.shape[:2])


@torch.no_grad()
def residuals(model: Transformer, examples: Examples) -> list[Float[Tensor, "batch pos d_model"]]:
    """Return the residual stream that enters layer 0, and that after every layer."""
    opened = opened_on(model, examples)
    found = [opened.embed()]
    for layer in range(model.cfg.n_layers):
        found.append(opened.block(layer, found[-1]))
    return found


def _random_positions(examples: Examples, treated: Bool[Tensor, "batch instance"], seed: int) -> Int[Tensor, "batch 2"]:
    """Draw two positions of every example at which no treated instance has a role; -1 if there are fewer than two."""
    roles, n_positions = examples.roles, examples.inputs.shape[1]
    taken = ~roles.tokens(n_positions)
    for name in roles.names:
        taken = taken | torch.zeros_like(taken).scatter(1, roles[name], treated)
    drawn = torch.rand(taken.shape, generator=torch.Generator().manual_seed(seed)).to(taken.device)
    first = drawn.masked_fill(taken, 2.0).argsort(dim=1)[:, :2]
    return first.masked_fill(((~taken).sum(dim=1) < 2)[:, None], -1)
