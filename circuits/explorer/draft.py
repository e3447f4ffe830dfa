"""A circuit as it stands while somebody tries things: what is drawn, what is taken away, what is set aside."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import SIMPLE
from circuits.mechanisms.one_hot import OneHot, is_role

PATHS, UNTOUCHED = "paths", "untouched"
TAKEN_AWAY = "uniform"  # what becomes of the row of a path that is taken away (paper, Appendix E, step 6)


@dataclass(frozen=True)
class Draft:
    """A circuit with its variations; every change gives another draft.

    Attributes:
        hypothesis: the circuit with all paths that are drawn, also those taken away.
        removed: the paths that are taken away for now.
        set_aside: the heads whose hypothesis is, with what stands in its place: ``uniform``, ``identity``,
            ``previous``, or ``untouched``: as the model has it.
    """

    hypothesis: Circuit
    removed: frozenset[AttentionPath] = frozenset()
    set_aside: Mapping[Head, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_aside", MappingProxyType(dict(self.set_aside)))

    @property
    def circuit(self) -> Circuit:
        """What is tried: the hypothesis without what is taken away and set aside."""
        circuit = self.hypothesis.without_heads(self.set_aside)
        for head, instead in self.set_aside.items():
            if instead != UNTOUCHED:
                circuit = circuit.with_head(head, SIMPLE[instead])
        for path in self.removed:
            if path.head not in self.set_aside:
                circuit = circuit.without(path, TAKEN_AWAY)
        return circuit

    def state(self, head: Head) -> str:
        """What a head does now: ``paths``, ``untouched``, or the name of its mechanism."""
        if head in self.set_aside:
            return self.set_aside[head]
        if AttentionPath(head, "*", "previous") in self.removed:  # the only path of its head
            return TAKEN_AWAY
        mechanism = self.hypothesis.heads.get(head)
        return UNTOUCHED if mechanism is None else PATHS if isinstance(mechanism, OneHot) else mechanism.name

    def states(self, head: Head) -> tuple[str, ...]:
        """What a head can be made to do, in the order in which it is gone through."""
        return (*dict.fromkeys((*SIMPLE, self._own(head), UNTOUCHED)),)

    @property
    def paths(self) -> dict[AttentionPath, bool]:
        """All paths of the hypothesis and of the circuit, and whether the circuit has them."""
        there = self.circuit.paths
        return {path: path in there for path in (*self.hypothesis.paths, *there)}

    def toggled(self, path: AttentionPath) -> "Draft":
        """With a path taken away, or put back where it was.

        Raises:
            BadInput: neither the hypothesis nor the circuit has such a path.
        """
        if path not in self.paths:
            raise BadInput(f"the circuit has no path {path}")
        if path not in self.hypothesis.paths:  # of a head that was made to look at the position before
            return self.made(path.head, TAKEN_AWAY)
        if path.head in self.set_aside:  # it comes back with its head, alone of those that were taken away
            return replace(self.made(path.head, self._own(path.head)), removed=self.removed - {path})
        return replace(self, removed=self.removed ^ {path})

    def made(self, head: Head, state: str) -> "Draft":
        """With a head made to do something else; its paths are kept for when it is made to follow them again.

        Raises:
            BadInput: there is nothing of that name.
        """
        if state not in self.states(head):
            raise BadInput(f"{head} cannot be made {state!r}; expected one of {', '.join(self.states(head))}")
        others = {one: instead for one, instead in self.set_aside.items() if one != head}
        own = {} if state == self._own(head) else {head: state}
        return replace(self, removed=self.removed - {AttentionPath(head, "*", "previous")}, set_aside={**others, **own})

    def next(self, head: Head) -> "Draft":
        """With a head one further: uniform, identity, previous, its paths, untouched."""
        states = self.states(head)
        return self.made(head, states[(states.index(self.state(head)) + 1) % len(states)])

    def drawn(self, path: AttentionPath) -> "Draft":
        """With a path more, and its head as the hypothesis has it but for that: paths that were set aside come back.

        A head that attends elsewhere from the same role does so no longer; one that is uniform, identity or previous
        gives that up.

        Raises:
            BadInput: it leads to no role.
        """
        if not is_role(path.target):
            raise BadInput(f"{path}: {path.target} is no role")
        now = self.hypothesis.heads.get(path.head)
        if isinstance(now, OneHot):
            mechanism = now.with_row(path.source, path.target)
        else:
            mechanism = OneHot({path.source: path.target})
        hypothesis = self.hypothesis.with_head(path.head, mechanism)
        others = {head: instead for head, instead in self.set_aside.items() if head != path.head}
        return Draft(hypothesis, self.removed & {*hypothesis.paths} - {path}, others)

    def _own(self, head: Head) -> str:
        """What the hypothesis says of a head."""
        return Draft(self.hypothesis).state(head)
