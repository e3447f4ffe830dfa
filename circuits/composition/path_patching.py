"""Path patching: by which senders do heads find where to look, and what do they fetch?"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit
from circuits.composition.composition_scores import composition_scores
from circuits.composition.edges import CARRIED, FOLLOWED, Composition, Decision, Edge
from circuits.composition.receiver import INPUTS, Receiver, exchanged
from circuits.composition.sender import ALL, Sender
from circuits.composition.senders import senders_below
from circuits.composition.unablated import Unablated, examples_at_once
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, examples_of
from circuits.losses.by_label import ByLabel, has_few_labels
from circuits.losses.mean import Mean
from circuits.losses.sample import stream_seed
from circuits.model.kept_run import check_branching
from circuits.model.transformer import Transformer
from circuits.model.windows import windowed
from circuits.task import Examples, Task
from circuits.utils.progress import Progress, part_of, shown

SCREENED = 64  # examples that decide which losses are measured
NOTICED = 0.05  # attention lost on them, from which on the loss of a Q or K edge is measured


class Key(NamedTuple):
    """What is patched: the contribution of one sender, in one input of one receiver."""

    path: AttentionPath
    which: str
    sender: Sender


@dataclass(frozen=True)
class Values:
    """The effects of a patch, for every example.

    Attributes:
        own: the unpatched attention on the target, averaged over the instances of the example on which the path holds.
        lost: the attention lost, averaged in the same way; None for values, which move no attention.
        loss: the increase of the loss; None if it was not measured.
        by_label: the attention lost, split by the label of the main group at every role; None without a small group.
    """

    own: Float[Tensor, " example"]
    lost: Float[Tensor, " example"] | None
    loss: Float[Tensor, " example"] | None
    by_label: Float[Tensor, "example role label"] | None


Wanted = Callable[[Key], bool]  # whether the loss of a patch is measured


@entrance
@torch.no_grad()
def path_patching(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    n_examples: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> Composition:
    """Find the senders that tell the heads of a circuit where to look (Q, K), and those that they fetch from (V).

    The unablated model runs. What one sender wrote at the positions of a path's source (Q) or target (K, V) is
    exchanged between the instances of an example, in a random cycle, in one input of one head. At a role that all
    instances share, and with one instance only, it is exchanged between examples. What counts is the attention on the
    target that is lost where the path holds (Q, K), and the loss returned: the increase of the loss with this head's
    output changed at the source where the path holds, and all else intact.

    Attention is measured for all edges, on ``n_examples``. The loss is measured on ``n_examples`` too, but only for
    edges that pass a screening on ``SCREENED`` other examples: Q and K edges that lose at least ``NOTICED`` of their
    attention, and V edges whose loss returned is above zero by more than three standard errors. The patches of all
    senders at once are measured without screening.

    Args:
        model: any HookedTransformer or TransformerBridge whose heads and MLPs add to the residual stream.
        task: the model's task; all examples have the same length.
        circuit: the circuit; all paths of its one-hot heads are receivers.
        n_examples: the number of examples.
        seed: the seed of all examples and exchanges.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or has no path between roles; the examples have
            padding; what heads and MLPs write does not add up (norms after them); or ``n_examples`` is out of range.
    """
    device = next(model.parameters()).device
    few, many = (
        examples_of(task, n, stream_seed(seed, f"path patching{stream}"), device)
        for n, stream in ((SCREENED, ", screening"), (n_examples, ""))
    )
    circuit.check(windowed(model, many.roles), model.cfg.n_layers, model.cfg.n_heads)
    check_branching(model, many)
    check_reading(model, task, many)
    paths = tuple(path for path in circuit.paths if path.joins_roles)
    if not paths:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    patching = _Patching(model, task, circuit, paths, seed)
    with shown(progress, "path patching") as progress:
        screened = patching.measured(few, lambda key: key.which == "V", part_of(progress, 0.0, 0.4))
        measured = {key for key, values in screened.items() if key.sender == ALL or _passes(values)}
        found = patching.measured(many, measured.__contains__, part_of(progress, 0.4, 1.0))
    return _result(model, circuit, found, many)


def _passes(values: Values) -> bool:
    """Whether the effect of a patch on the screening examples is worth measuring its loss."""
    if values.loss is not None:
        return Mean.of(values.loss).positive
    return values.lost is not None and Mean.of(values.lost).mean >= NOTICED


@dataclass(frozen=True)
class _Patching:
    """Patches of every sender in every input of every receiver."""

    model: Transformer
    task: Task
    circuit: Circuit
    paths: tuple[AttentionPath, ...]
    seed: int

    def measured(self, examples: Examples, wanted: Wanted, progress: Progress) -> dict[Key, Values]:
        """Return the effects of all patches, batch by batch."""
        n, n_instances = len(examples), examples.roles.positions.shape[2]
        split = has_few_labels(examples.roles)
        between = examples.roles.shared if n_instances > 1 else examples.roles.names
        generator = torch.Generator().manual_seed(stream_seed(self.seed, "exchanged instances"))
        batches = torch.arange(n).tensor_split(-(-n // examples_at_once(self.model, examples)))
        parts: dict[Key, list[Values]] = {}
        for index, batch in enumerate(batches):
            run = Unablated(self.model, self.task, examples.take(slice(int(batch[0]), int(batch[-1]) + 1)))
            instances = exchanged(len(batch), n_instances, generator).to(run.example.device)
            for place, path in enumerate(self.paths):
                there = self.circuit.heads[path.head].holds(path.source, path.target, run.examples.roles)
                receiver = Receiver(run, path, there, instances, between)
                for key, values in _effects(receiver, wanted, split):
                    parts.setdefault(key, []).append(values)
                progress((index + (place + 1) / len(self.paths)) / len(batches))
        return {key: _joined(values) for key, values in parts.items()}


def _effects(receiver: Receiver, wanted: Wanted, split: bool) -> Iterator[tuple[Key, Values]]:
    """Yield the effects of all patches of a receiver on a batch."""
    senders = (*senders_below(receiver.path.head.layer, receiver.run.model.cfg), ALL)
    for which in INPUTS:
        keys = [Key(receiver.path, which, sender) for sender in senders]
        pattern, z = receiver.patched(which)
        chosen = [index for index, key in enumerate(keys) if wanted(key)]
        losses = dict(zip(chosen, receiver.losses(z[chosen]) - receiver.run.losses, strict=True))
        own = receiver.on_target(receiver.pattern)
        moved = which != "V"
        lost = own - receiver.on_target(pattern) if moved else None
        by_label = receiver.by_label(pattern) if split and moved else None
        for index, key in enumerate(keys):
            at = [None if effect is None else effect[index] for effect in (lost, by_label)]
            yield key, Values(own, at[0], losses.get(index), at[1])


def _joined(parts: list[Values]) -> Values:
    def joined(each: list[Tensor | None]) -> Tensor | None:
        known = [one for one in each if one is not None]
        return torch.cat(known) if known else None

    own = torch.cat([part.own for part in parts])
    effects = ([getattr(part, name) for part in parts] for name in ("lost", "loss", "by_label"))
    return Values(own, *map(joined, effects))


def _decision(edge: Values, all_senders: Values) -> Decision:
    """Compare the effect of a patch with its threshold; for values, with a share of that of all senders at once."""
    if edge.lost is not None:
        over = Mean.of(edge.lost - FOLLOWED)
    elif edge.loss is not None and all_senders.loss is not None and Mean.of(all_senders.loss).positive:
        over = Mean.of(edge.loss - CARRIED * all_senders.loss)
    else:
        return "not found"
    if not over.n_examples:
        return "not found"
    return "undecided" if over.near(0.0) else "found" if over.mean > 0 else "not found"


def _result(model: Transformer, circuit: Circuit, found: Mapping[Key, Values], examples: Examples) -> Composition:
    """Decide which edges are found."""
    means = {
        key: tuple(None if each is None else Mean.of(each) for each in (values.lost, values.loss))
        for key, values in found.items()
    }
    scores = composition_scores(model)
    named = {role for path in circuit.paths for role in (path.source, path.target)}

    def edge(key: Key) -> Edge:
        lost, loss = means[key]
        decision = _decision(found[key], found[key._replace(sender=ALL)])
        split = found[key].by_label
        by_label = None if split is None else ByLabel.of(split, examples.roles, named)
        head = key.sender.head
        pair = (key.which, head, key.path.head) if head else None
        score, rank = (scores.of(*pair), scores.rank(*pair)) if pair else (None, None)
        role = key.path.source if key.which == "Q" else key.path.target
        of_sender = tuple(path for path in circuit.paths if path.head == head and path.source == role)
        return Edge(key.sender, key.path, key.which, lost, loss, by_label, score, rank, decision, of_sender)

    edges = [edge(key) for key in means]
    each, whole = (tuple(one for one in edges if (one.sender == ALL) == all_) for all_ in (False, True))
    return Composition({key.path: Mean.of(values.own) for key, values in found.items()}, each, whole, len(examples))
