"""A model with its true circuit: the check that it carries the circuit, and the comparison with what was found."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from circuits import Circuit, Head, OneHot, evaluate
from circuits.circuit import AttentionPath
from circuits.flow.fixed_paths import fixed_paths
from circuits.mechanisms import Previous
from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.tasks.retrieval import RetrievalTask

THRESHOLD = 0.05  # a loss below it counts as low, as in discovery
CHECKED_ON = 256  # examples; a seed of their own
Alternatives = frozenset[AttentionPath]  # paths of which one is enough


@dataclass(frozen=True)
class GroundTruth:
    """A model with its true circuit.

    Attributes:
        model: the model.
        task: its task.
        circuit: the planted circuit.
        needed: what is needed: of each set, one path.
        positional: the heads that are needed and have no path from role to role.
        strength: how much noise or overlap the model has, on the scale of its level; None on other levels.
    """

    model: HookedTransformer
    task: ChainTask | RetrievalTask
    circuit: Circuit
    needed: tuple[Alternatives, ...]
    positional: frozenset[Head] = frozenset()
    strength: float | None = None

    @property
    def true_heads(self) -> frozenset[Head]:
        """The heads that the task needs, whatever other heads do."""
        return self.positional | {path.head for paths in self.needed if len(paths) == 1 for path in paths}

    @property
    def open_heads(self) -> frozenset[Head]:
        """The heads that are needed unless another one backs them up; they count neither as true nor as false."""
        return frozenset(path.head for paths in self.needed for path in paths) - self.true_heads

    @property
    def all_heads(self) -> tuple[Head, ...]:
        """All heads of the model."""
        return tuple(Head(layer, i) for layer in range(self.model.cfg.n_layers) for i in range(self.model.cfg.n_heads))


@dataclass(frozen=True)
class Carried:
    """Whether a model carries its planted circuit.

    Attributes:
        loss: the loss of the model.
        planted: the loss with all planted heads replaced by their planted patterns, all others intact.
        least: the lowest loss without something that is needed: its heads have their planted patterns, in which its
            sources attend to themselves, and all others are intact, so that what guides them counts, too.
    """

    loss: float
    planted: float
    least: float

    @property
    def ok(self) -> bool:
        """Whether the model solves its task, also by the planted patterns, and by none of them less."""
        return max(self.loss, self.planted) < THRESHOLD / 2 and self.least > 2 * THRESHOLD


def carried(truth: GroundTruth, seed: int = 987654321) -> Carried:
    """Measure whether a model carries its planted circuit, on examples that no other step sees."""
    circuits = [Circuit(), truth.circuit]
    for paths in truth.needed:
        without = Circuit({path.head: truth.circuit.heads[path.head] for path in paths})
        for path in paths:
            without = without.without(path, "identity")
        circuits.append(without)
    circuits += [Circuit({head: "identity"}) for head in truth.positional]
    examples = truth.task.examples(CHECKED_ON, seed)
    losses = evaluate(truth.model, truth.task, examples, circuits).mean(dim=(1, 2)).tolist()
    return Carried(losses[0], losses[1], min(losses[2:]))


def paths_found(circuit: Circuit, truth: GroundTruth) -> frozenset[AttentionPath]:
    """Return the paths of a found circuit, among them the planted ones that its maps, averages and ``previous`` have.

    Such a pattern has a row everywhere, also where the head is free. So only planted paths of maps and averages count,
    if they hold on all instances; of ``previous`` the planted ones, or else the one path that it is.
    """
    planted = {path for paths in truth.needed for path in paths}
    found = {path for path in _of_fixed_patterns(circuit, truth) if path in planted}
    for path in circuit.paths:
        own = {one for one in planted if one.head == path.head and (one.source, one.target) in truth.task.layout.joined}
        found |= own if own and isinstance(circuit.heads[path.head], Previous) else {path}
    return frozenset(found)


def slots_right(circuit: Circuit, paths: Iterable[AttentionPath], truth: GroundTruth) -> float:
    """Return the share of instances on which found paths hold where planted, averaged over those that are planted.

    An instance is right if both have the path there, or neither; a path of a fixed pattern holds on all instances. If
    no planted path was found, the share is 0.
    """
    roles = truth.task.examples(CHECKED_ON, seed=0).roles

    def there(own: Circuit, path: AttentionPath) -> torch.Tensor:
        head = own.heads[path.head]
        rows = isinstance(head, OneHot) and (path.source, path.target) in head.rows
        return head.holds(path.source, path.target, roles) if rows else torch.tensor(True)

    planted = {path for alternatives in truth.needed for path in alternatives}
    right = [(there(circuit, path) == there(truth.circuit, path)).float().mean().item() for path in planted & {*paths}]
    return sum(right) / max(len(right), 1)


def _of_fixed_patterns(circuit: Circuit, truth: GroundTruth) -> list[AttentionPath]:
    """Return the paths of maps and averages that hold on all instances."""
    roles = truth.task.examples(CHECKED_ON, seed=0).roles
    return [path for path, condition in fixed_paths(circuit, roles).items() if condition is None]


def precision_and_recall(found: Iterable[AttentionPath], needed: Iterable[Alternatives]) -> tuple[float, float]:
    """Return the share of the found paths that are needed, and the share of what is needed that was found.

    Of paths of which one is enough, a second one is not needed. If nothing was found, the precision is 0.
    """
    paths, sets = {*found}, [*needed]
    hit = sum(bool(paths & alternatives) for alternatives in sets)
    return hit / max(len(paths), 1), hit / len(sets)
