"""Path patching: by which senders do heads find where to look, and what do they fetch?

By interchange (Goldowsky-Dill et al. 2023): what one sender wrote is exchanged between the instances of an example, and
only one input of one head sees the exchange: its queries (Q), its keys (K) or its values (V).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, role_paths
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, examples_of, stream_seed
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.losses.loss import Mean, per_example
from circuits.model.transformer import Transformer, windowed
from circuits.results import Decision
from circuits.settings import current
from circuits.task import Examples, Task
from circuits.tracing.edges import ALL, Composition, Edge
from circuits.tracing.patched_head import Patched, PatchedHead
from circuits.tracing.unablated import Unablated, examples_at_once, senders_below
from circuits.utils.progress import Progress, part_of, shown


class Patch(NamedTuple):
    """What is patched: the contribution of one sender, in one input of the head of one path."""

    path: AttentionPath
    input: str
    sender: str


# For every example: ``attention`` on the target without a patch; if they are measured, the attention ``lost``, the same
# ``by_label`` of the main group at every role, [example, role, label], and the increase of the ``loss``.
Effects = dict[str, Tensor]


@entrance
@torch.no_grad()
def path_patching(
    model: Transformer, task: Task, circuit: Circuit, *, n_examples: int = 256, seed: int = 0
) -> Composition:
    """Find the senders that tell the heads of a circuit where to look (Q, K), and those that they fetch from (V).

    The unablated model runs. What one sender wrote at the positions of a path's source (Q) or target (K, V) is
    exchanged between the instances of an example, in a random cycle, in one input of one head. At a role that all
    instances share, and with one instance only, it is exchanged between examples. What counts is the attention on the
    target that is lost where the path holds (Q, K), and the loss returned: the increase of the loss with this head's
    output changed at the source where the path holds, and all else intact.

    Attention is measured for all edges, on ``n_examples``. The loss is measured on ``n_examples`` too, but only for
    edges that pass a screening on ``screened`` other examples: Q and K edges that lose at least ``noticed`` of their
    attention, and V edges whose loss returned is above zero by more than three standard errors. The patches of all
    senders at once are measured without screening.

    Args:
        model: any HookedTransformer or TransformerBridge whose heads and MLPs add to the residual stream.
        task: the model's task; all examples have the same length.
        circuit: the circuit; all paths of its one-hot heads are patched.
        n_examples: the number of examples.
        seed: the seed of all examples and exchanges.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or has no path between roles; the examples have
            padding; what heads and MLPs write does not add up (norms after them); or ``n_examples`` is out of range.
    """
    device = next(model.parameters()).device
    few, many = (
        examples_of(task, n, stream_seed(seed, f"path patching{stream}"), device)
        for n, stream in ((current().screened, ", screening"), (n_examples, ""))
    )
    circuit.check(windowed(model, many.roles), model.cfg.n_layers, model.cfg.n_heads)
    if many.roles.valid is not None:
        raise BadInput("the examples have padding; expected examples of the same length")
    if not many.roles.causal:
        raise BadInput("the model attends in both directions; expected one with a causal mask")
    check_reading(model, task, many)
    paths = role_paths(circuit)

    def measure(examples: Examples, wanted: Callable[[Patch], bool], progress: Progress) -> dict[Patch, Effects]:
        """Return the effects of all patches, batch by batch; the loss is measured for some."""
        n, n_instances, split = len(examples), examples.roles.positions.shape[2], has_few_labels(examples.roles)
        between = examples.roles.shared if n_instances > 1 else examples.roles.names
        generator = torch.Generator().manual_seed(stream_seed(seed, "exchanged instances"))
        instances = exchanged(n, n_instances, generator).to(device)
        batches = torch.arange(n).tensor_split(-(-n // examples_at_once(model, examples)))
        parts: dict[Patch, list[Effects]] = {}
        for number, batch in enumerate(batches):
            here = slice(int(batch[0]), int(batch[-1]) + 1)
            run = Unablated(model, task, examples.take(here))
            for place, path in enumerate(paths):
                there = circuit.heads[path.head].holds(path.source, path.target, run.examples.roles)
                for patch, effects in Receiver(run, path, there, instances[here], between, split).effects(wanted):
                    parts.setdefault(patch, []).append(effects)
                progress((number + (place + 1) / len(paths)) / len(batches))
        return {
            patch: {name: torch.cat([one[name] for one in each]) for name in each[0]} for patch, each in parts.items()
        }

    with shown(None, "path patching") as progress:
        screened = measure(few, lambda patch: patch.input == "V", part_of(progress, 0.0, 0.4))
        passed = {patch for patch, effects in screened.items() if patch.sender == ALL or _passes(effects)}
        measured = measure(many, passed.__contains__, part_of(progress, 0.4, 1.0))
    named = {role for path in circuit.paths for role in (path.source, path.target)}
    edges = (
        Edge(
            **patch._asdict(),
            attention_lost=Mean.of(effects["lost"]) if "lost" in effects else None,
            loss_returned=Mean.of(effects["loss"]) if "loss" in effects else None,
            by_label=ByLabel.of(effects["by_label"], many.roles, named) if "by_label" in effects else None,
            decision=_decision(effects, measured[patch._replace(sender=ALL)]),
        )
        for patch, effects in measured.items()
    )
    attention = {patch.path: Mean.of(effects["attention"]) for patch, effects in measured.items()}
    return Composition(attention=attention, edges=tuple(edges), n_examples=n_examples)


def _passes(effects: Effects) -> bool:
    """Whether the effect of a patch on the screening examples is worth measuring its loss."""
    if "loss" in effects:
        return Mean.of(effects["loss"]).positive
    return Mean.of(effects["lost"]).mean >= current().noticed


def _decision(effects: Effects, all_senders: Effects) -> Decision:
    """Compare the effect of a patch with its threshold; for values, with a share of that of all senders at once."""
    if "lost" in effects:
        over = Mean.of(effects["lost"] - current().followed)
    elif "loss" in effects and Mean.of(all_senders["loss"]).positive:
        over = Mean.of(effects["loss"] - current().carried * all_senders["loss"])
    else:
        return "fails"
    if not over.n_examples:  # the path holds nowhere
        return "fails"
    return "undecided" if over.near(0.0) else "holds" if over.mean > 0 else "fails"


def exchanged(n_examples: int, n_instances: int, generator: torch.Generator) -> Int[Tensor, "example instance"]:
    """Return for every instance the next one of its example, in a random cycle through all of them."""
    order = torch.rand(n_examples, n_instances, generator=generator).argsort(dim=1)
    return torch.empty_like(order).scatter_(1, order, order.roll(1, dims=1))


@dataclass(frozen=True)
class Receiver:
    """An attention path on a batch of examples.

    Attributes:
        run: the unablated run.
        path: the path.
        there: the instances on which the path holds.
        instances: for every instance, the one whose content it gets, if it is exchanged within the example.
        between: the roles whose content is exchanged between examples, not between instances.
        split: whether attention is split by the main group.
    """

    run: Unablated
    path: AttentionPath
    there: Bool[Tensor, "example instance"]
    instances: Int[Tensor, "example instance"]
    between: tuple[str, ...]
    split: bool = False

    @cached_property
    def head(self) -> PatchedHead:
        """The head, read at the path's source."""
        return PatchedHead(self.run, self.path.head, self.run.examples.roles[self.path.source])

    def effects(self, wanted: Callable[[Patch], bool]) -> Iterator[tuple[Patch, Effects]]:
        """Yield the effects of all patches; the loss is measured for some."""
        senders = (*senders_below(self.path.head.layer, self.run.model.cfg), ALL)
        attention = self.on_target(self.head.pattern)
        for which in "QKV":
            patches = [Patch(self.path, which, sender) for sender in senders]
            pattern, z = self.patched(which)
            chosen = [index for index, patch in enumerate(patches) if wanted(patch)]
            each = {"loss": dict(zip(chosen, self.losses(z[chosen]) - self.run.losses, strict=True))}
            if which != "V":
                each["lost"] = dict(enumerate(attention - self.on_target(pattern)))
                each["by_label"] = dict(enumerate(self.by_label(pattern))) if self.split else {}
            for index, patch in enumerate(patches):
                yield patch, {"attention": attention} | {name: of[index] for name, of in each.items() if index in of}

    def patched(self, which: str) -> Patched:
        """Return the head's attention and its output z at the source, with one input patched.

        There is one variant for every sender below the head, and a last one for all of them at once.

        Args:
            which: the input, ``Q``, ``K`` or ``V``.
        """
        role, layer = self.path.source if which == "Q" else self.path.target, self.path.head.layer
        at = self.run.examples.roles[role]
        contributions = self.run.written(layer, at)
        contributions = torch.cat([contributions, contributions.sum(dim=0, keepdim=True)])
        if role in self.between:
            other = contributions.roll(1, dims=1)
        else:
            other = contributions[:, self.run.example, self.instances]
        return self.head.patched(which, at, self.run.residuals[layer][self.run.example, at] + other - contributions)

    def on_target(self, pattern: Float[Tensor, "*variant example instance key"]) -> Float[Tensor, "*variant example"]:
        """Return the attention on the target, averaged over the instances of each example on which the path holds."""
        return per_example(self._attention(pattern), self.there.float())

    def by_label(
        self, pattern: Float[Tensor, "sender example instance key"]
    ) -> Float[Tensor, "sender example role label"]:
        """Return the attention lost on the target, split by the label of the main group at every role."""
        lost = self._attention(self.head.pattern - pattern)
        return over_labels(lost, self.there, self.run.examples.roles)

    def _attention(
        self, pattern: Float[Tensor, "*variant example instance key"]
    ) -> Float[Tensor, "*variant example instance"]:
        to = self.run.examples.roles[self.path.target][..., None].expand(*pattern.shape[:-1], 1)
        return pattern.gather(-1, to)[..., 0]

    def losses(self, z: Float[Tensor, "variant example instance d_head"]) -> Float[Tensor, "variant example"]:
        """Return the losses with another output of the head at the source, where the path holds."""
        if not len(z) or not self.there.any():
            return self.run.losses.repeat(len(z), 1)
        example, instance = self.there.nonzero(as_tuple=True)
        at = example, self.head.source[example, instance]
        return torch.stack([self.head.losses(at, new[example, instance]) for new in z])
