"""Flow check: could a circuit do what is asked of it, by information flow alone? No weights are looked at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from circuits.circuit import AttentionPath, Circuit
from circuits.flow.circuit_flow import circuit_flow
from circuits.flow.fixed_paths import fixed_paths, with_fixed_paths
from circuits.flow.layout import Layout
from circuits.problem import Problem

ROLE_EXAMPLES = 256  # that say where roles stand


@runtime_checkable
class LaidOut(Protocol):
    """A problem that knows with which pieces of information its roles start; its loss components are pieces too."""

    @property
    def layout(self) -> Layout:
        """Every role with its pieces."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every loss component the role at which it is read."""


@dataclass(frozen=True)
class FlowCheck:
    """What the paths of a circuit carry, if each end takes only from those with whom it shares a piece.

    A path that is there on some instances only counts as if it were there on all.

    Attributes:
        known_at: for every loss component the layer after which it is known where it is read; None if it never is.
        redundant: the paths whose source knows all of it already.
        forbidden: the paths whose ends share nothing below their layer that tells where to look, against Assumption 1.
        fixed: the paths of fixed patterns, which carry like all others.
    """

    known_at: dict[str, int | None]
    redundant: tuple[AttentionPath, ...]
    forbidden: tuple[AttentionPath, ...]
    fixed: tuple[AttentionPath, ...]

    @property
    def passed(self) -> bool:
        """Whether every loss component is known where it is read."""
        return None not in self.known_at.values()

    def sentences(self, low: bool) -> tuple[str, ...]:
        """The findings in words.

        Args:
            low: whether the loss is, with every head replaced by its mechanism.
        """
        known = [f"{component} after layer {layer}" for component, layer in self.known_at.items() if layer is not None]
        missing = [component for component, layer in self.known_at.items() if layer is None]
        said = []
        if self.fixed:
            said.append(f"These fixed patterns lead from role to role: {_listed(self.fixed)}.")
        if known:
            said.append(f"By the circuit's paths alone, these are known where they are read: {', '.join(known)}.")
        if missing:
            said.append(f"By the circuit's paths alone, these are never known there: {', '.join(missing)}.")
        if self.forbidden:
            said.append(
                "The two ends of these paths share no information that tells where to look (Assumption 1): "
                f"{_listed(self.forbidden)}."
            )
        if self.redundant:
            said.append(f"These paths carry nothing new: {_listed(self.redundant)}.")
        if self.passed and not low:
            said.append("Information flow allows the circuit, but its loss is not low: the model works another way.")
        if low and not self.passed:
            said.append(
                "The loss is low all the same, because replaced attention needs no reason to look somewhere. The "
                "circuit does not contain what tells the model's own heads where to look."
            )
        return tuple(said)

    def to_json(self, low: bool) -> dict[str, Any]:
        """As plain numbers and texts; docs/reports.md says what each key holds."""
        return {
            "passed": self.passed,
            "known_at": self.known_at,
            "redundant": [*map(str, self.redundant)],
            "forbidden": [*map(str, self.forbidden)],
            "fixed_paths": [*map(str, self.fixed)],
            "sentences": [*self.sentences(low)],
        }


def flow_check(circuit: Circuit, problem: Problem) -> FlowCheck | None:
    """Follow the information along a circuit's paths; None where the problem does not say what its roles know."""
    if not isinstance(problem, LaidOut):
        return None
    roles = problem.examples(ROLE_EXAMPLES, seed=0).roles
    flow = circuit_flow(with_fixed_paths(circuit, roles), problem.layout)
    carried = [one for one in flow.carried if one.path.source in problem.roles]
    layers = {component: flow.layers_until(role, component) for component, role in problem.read_at.items()}
    return FlowCheck(
        {component: None if after is None else after - 1 for component, after in layers.items()},
        tuple(one.path for one in carried if one.allowed and not one.new),
        tuple(one.path for one in carried if not one.allowed),
        fixed_paths(circuit, roles),
    )


def _listed(paths: tuple[AttentionPath, ...]) -> str:
    return "; ".join(map(str, paths))
