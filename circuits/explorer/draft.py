"""A circuit that is edited: its paths, the paths that are removed for now, and the heads that do something else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import SIMPLE
from circuits.mechanisms.one_hot import OneHot, is_role

PATHS, INTACT = "paths", "intact"
REMOVED = "uniform"  # the row of a removed path (paper, Appendix E, step 6)


@dataclass(frozen=True)
class Draft:
    """A circuit with its variations; every change returns another draft.

    Attributes:
        hypothesis: the circuit with all paths that are drawn, including the removed ones.
        removed: the paths that are removed for now.
        set_aside: the heads whose hypothesis is not used for now, each with its state: ``uniform``, ``identity``,
            ``previous``, or ``intact``.
    """

    hypothesis: Circuit
    removed: frozenset[AttentionPath] = frozenset()
    set_aside: Mapping[Head, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_aside", MappingProxyType(dict(self.set_aside)))

    @property
    def circuit(self) -> Circuit:
        """The circuit that is measured: the hypothesis with paths removed and heads set aside."""
        circuit = self.hypothesis.without_heads(self.set_aside)
        for head, instead in self.set_aside.items():
            if instead != INTACT:
                circuit = circuit.with_head(head, SIMPLE[instead])
        for path in self.removed:
            if path.head not in self.set_aside:
                circuit = circuit.without(path, REMOVED)
        return circuit

    def state(self, head: Head) -> str:
        """Return the state of a head: ``paths``, ``intact``, or the name of its mechanism."""
        if head in self.set_aside:
            return self.set_aside[head]
        if AttentionPath(head, "*", "previous") in self.removed:  # the only path of its head
            return REMOVED
        mechanism = self.hypothesis.heads.get(head)
        return INTACT if mechanism is None else PATHS if isinstance(mechanism, OneHot) else mechanism.name

    def states(self, head: Head) -> tuple[str, ...]:
        """Return the possible states of a head, in the order of ``next``."""
        return (*dict.fromkeys((*SIMPLE, self._own(head), INTACT)),)

    @property
    def paths(self) -> dict[AttentionPath, bool]:
        """All paths of the hypothesis and of the circuit, and whether the circuit has them."""
        there = self.circuit.paths
        return {path: path in there for path in (*self.hypothesis.paths, *there)}

    def toggled(self, path: AttentionPath) -> "Draft":
        """Return the draft with a path removed, or put back.

        Raises:
            BadInput: neither the hypothesis nor the circuit has such a path.
        """
        if path not in self.paths:
            raise BadInput(f"the circuit has no path {path}")
        if path not in self.hypothesis.paths:  # the path of a head that was made previous
            return self.made(path.head, REMOVED)
        if path.head in self.set_aside:  # the head is not set aside any more; its other removed paths stay removed
            return replace(self.made(path.head, self._own(path.head)), removed=self.removed - {path})
        return replace(self, removed=self.removed ^ {path})

    def made(self, head: Head, state: str) -> "Draft":
        """Return the draft with a head in another state; its paths are kept for the state ``paths``.

        Raises:
            BadInput: the head has no such state.
        """
        if state not in self.states(head):
            raise BadInput(f"{head} cannot be made {state!r}; expected one of {', '.join(self.states(head))}")
        others = {one: instead for one, instead in self.set_aside.items() if one != head}
        own = {} if state == self._own(head) else {head: state}
        return replace(self, removed=self.removed - {AttentionPath(head, "*", "previous")}, set_aside={**others, **own})

    def next(self, head: Head) -> "Draft":
        """Return the draft with a head in its next state: uniform, identity, previous, its paths, intact."""
        states = self.states(head)
        return self.made(head, states[(states.index(self.state(head)) + 1) % len(states)])

    def drawn(self, path: AttentionPath) -> "Draft":
        """Return the draft with one more path; its head follows the hypothesis again, with its other paths.

        The path replaces the head's path from the same role. A head that was uniform, identity or previous gets this
        path only.

        Raises:
            BadInput: the path does not lead to a role.
        """
        if not is_role(path.target):
            raise BadInput(f"{path}: {path.target} is not a role; expected a path to a role")
        now = self.hypothesis.heads.get(path.head)
        if isinstance(now, OneHot):
            mechanism = now.with_row(path.source, path.target)
        else:
            mechanism = OneHot({path.source: path.target})
        hypothesis = self.hypothesis.with_head(path.head, mechanism)
        others = {head: instead for head, instead in self.set_aside.items() if head != path.head}
        return Draft(hypothesis, self.removed & {*hypothesis.paths} - {path}, others)

    def _own(self, head: Head) -> str:
        """Return the state of a head in the hypothesis."""
        return Draft(self.hypothesis).state(head)
