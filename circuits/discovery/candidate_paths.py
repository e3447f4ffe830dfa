"""The paths that circuits may be made of: those of a known circuit, and those that attention shows."""

from __future__ import annotations

from collections.abc import Collection

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.discovery.observed_paths import ObservedPaths
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE, Identity, Mechanism, Uniform
from circuits.mechanisms.one_hot import Condition, Ends, OneHot, is_role
from circuits.roles import Roles


class CandidatePaths:
    """The candidate paths of a model, and the circuit of every set of them.

    A circuit's own path that is not in a set gets a uniform row, or a row to itself, on the instances where it held
    (step 6 of Appendix E). A path that attention shows is added to a one-hot head as a row, and to any other head in
    the place of its mechanism, with the head's average elsewhere, as discovery does. All else stays as in the circuit:
    fixed patterns, rows to fixed positions, and what heads do elsewhere.

    Attributes:
        circuit: the known circuit.
        own: the paths of the circuit.
        paths: all candidate paths, those of the circuit first.
        left_out: paths that attention shows and that are no candidates, because the circuit already says where their
            source attends on some of their instances, or because their head has a mechanism that no path can be added
            to.
    """

    def __init__(self, circuit: Circuit, observed: ObservedPaths, roles: Roles) -> None:
        """Collect the candidate paths.

        Args:
            circuit: a circuit that names every head.
            observed: the paths that attention shows.
            roles: the roles of some examples; they tell on which instances two paths overlap.
        """
        self.circuit, self._observed = circuit, observed
        self.own = circuit.paths
        shown = {
            AttentionPath(head, *ends): row.condition
            for head, rows in observed.rows.items()
            for ends, row in rows.items()
            if is_role(ends[1]) and AttentionPath(head, *ends) not in self.own
        }
        fitting = {path: own for path, own in shown.items() if _fits(circuit.heads[path.head], path, own, roles)}
        self._conditions = fitting
        self.paths = (*self.own, *fitting)
        self.left_out = tuple(path for path in shown if path not in fitting)

    def ways(self, chosen: Collection[AttentionPath]) -> dict[str, Circuit]:
        """Return the circuit with these paths only, for every kind of row that a removed path may get."""
        return {instead: self._with(chosen, instead) for instead in REPLACEMENTS}

    def _with(self, chosen: Collection[AttentionPath], instead: str) -> Circuit:
        circuit = self.circuit
        for head in dict.fromkeys(path.head for path in self.paths):
            gone = [path for path in self.own if path.head == head and path not in chosen]
            added = [path for path in self._conditions if path.head == head and path in chosen]
            if gone or added:
                circuit = circuit.with_head(head, self._mechanism(head, gone, added, instead))
        return circuit

    def _mechanism(
        self, head: Head, gone: Collection[AttentionPath], added: Collection[AttentionPath], instead: str
    ) -> Mechanism:
        """Return a head's mechanism with some paths removed and some added."""
        mechanism = self.circuit.heads[head]
        ends: list[Ends] = [(path.source, path.target) for path in added]
        if isinstance(mechanism, OneHot):
            given = ((these, self._conditions[path]) for these, path in zip(ends, added, strict=True))
            where = {these: condition for these, condition in given if condition is not None}
            mechanism = OneHot([*mechanism.rows, *ends], mechanism.elsewhere, {**dict(mechanism.where), **where})
            for path in gone:
                mechanism = mechanism.with_row(path.source, instead, path.target)
            return mechanism
        return self._observed.mechanism(head, ends) if ends else SIMPLE[instead]


def _fits(mechanism: Mechanism, path: AttentionPath, condition: Condition | None, roles: Roles) -> bool:
    """Whether a path can be added to a mechanism: no row of its source holds on the same instances, but defaults."""
    if not isinstance(mechanism, OneHot):
        return isinstance(mechanism, Uniform | Identity | FixedPattern)
    where = dict(mechanism.where)
    for source, target in mechanism.rows:
        replaceable = (source, target) not in where and not is_role(target) and condition is not None
        if source == path.source and not replaceable:
            own = mechanism.holds(source, target, roles)
            if (own if condition is None else own & condition.holds(roles)).any():
                return False
    return True
