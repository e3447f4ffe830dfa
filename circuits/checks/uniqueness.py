"""Unique: would another circuit do as well? Information beside the verdict, and no part of it.

A path may lead to another role with no more than the least effect on the loss. Such a circuit cannot be told from the
first by its loss.
"""

from collections.abc import Sequence

from circuits.checks.experiment import Experiment, listed
from circuits.checks.minimality import Removal
from circuits.circuit import AttentionPath
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms.one_hot import OneHot
from circuits.results import Result
from circuits.task import LaidOut


class Uniqueness(Result):
    """Other targets of paths, with their losses; an excess is that over the circuit's own loss.

    Attributes:
        targets: for every path that matters directly, the loss with another role as its target, for every role before
            its source that does not hold the same symbol by the task's layout.
    """

    targets: dict[AttentionPath, dict[str, DecidedLoss]]

    def note(self, limit: float) -> str:
        """What does as well, or may, and with which the loss stays below a limit, in a sentence."""
        each = [(path, role, one.loss.mean) for path, roles in self.targets.items() for role, one in roles.items()]
        low = listed(f"{path} ({role}: {loss:.4f})" for path, role, loss in each if loss < limit)
        good = listed(f"{path} ({role})" for path, role in self.as_good)
        said = f"these may do as well: {good}" if good else "none does as well"
        said += f"; with these the loss is still low: {low}" if low else ""
        return f"Tried: other targets of paths, {len(each)}; {said}."

    @property
    def as_good(self) -> tuple[tuple[AttentionPath, str], ...]:
        """The paths and other targets without a clear effect on the loss."""
        each = ((path, role, one) for path, roles in self.targets.items() for role, one in roles.items())
        return tuple((path, role) for path, role, one in each if one.decision != "above")


def uniqueness(experiment: Experiment, parts: Sequence[Removal]) -> Uniqueness:
    """Try other targets of what matters directly."""
    test, circuit = experiment.test, experiment.circuit
    paths = [one.path for one in parts if one.path is not None and one.needed == "directly"]
    ways = {}
    for path in (path for path in paths if isinstance(circuit.heads[path.head], OneHot)):
        for role in test.roles.in_layer(path.head.layer).before(path.source):
            if role not in (path.target, *_holding_the_same(experiment, path.target)):
                ways[path, role] = circuit.retargeted(path, role)
    targets: dict[AttentionPath, dict[str, DecidedLoss]] = {}
    for (path, role), one in test.costs(ways, circuit).items():
        targets.setdefault(path, {})[role] = one
    return Uniqueness(targets=targets)


def _holding_the_same(experiment: Experiment, role: str) -> tuple[str, ...]:
    """Return the other roles that start with the same symbols as a role, by the task's layout."""
    if not isinstance(experiment.task, LaidOut):
        return ()
    layout = experiment.task.layout
    symbols = {name: pieces - layout.places for name, pieces in layout.start.items()}
    return tuple(name for name in symbols if name != role and symbols[name] == symbols.get(role))
