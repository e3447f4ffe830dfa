"""Flow check: could a circuit's paths carry the answer, by information flow? The weights are not used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from circuits.circuit import AttentionPath, Circuit
from circuits.flow.circuit_flow import circuit_flow
from circuits.flow.fixed_paths import FixedPaths, fixed_paths, with_fixed_paths
from circuits.flow.layout import Layout
from circuits.problem import Problem

ROLE_EXAMPLES = 256  # examples that give the positions of roles


@runtime_checkable
class LaidOut(Protocol):
    """A problem with a layout of its roles; its loss components are pieces of information, too."""

    @property
    def layout(self) -> Layout:
        """Every role with its pieces."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every loss component, the role at which it is read."""


@dataclass(frozen=True)
class FlowCheck:
    """The result of the flow check: the information that the paths of a circuit carry under Assumption 1.

    Attributes:
        known_at: for every loss component, the layer after which it is known where it is read; None if it never is.
        redundant: the paths that carry nothing new to their source.
        forbidden: the paths that Assumption 1 forbids: below their layer, their ends share no piece that determines
            where to look.
        fixed: the paths of fixed patterns with their conditions; they carry information like all other paths.
        conditional: whether a path has a condition. It counts as if it held on all instances.
    """

    known_at: dict[str, int | None]
    redundant: tuple[AttentionPath, ...]
    forbidden: tuple[AttentionPath, ...]
    fixed: FixedPaths
    conditional: bool

    @property
    def passed(self) -> bool:
        """Whether every loss component is known where it is read."""
        return None not in self.known_at.values()

    @property
    def _fixed_said(self) -> list[str]:
        """The paths of fixed patterns with their conditions, such as ``L1H0 query -> pair1.second on slot 0, 2``."""
        on = {path: condition.text(path.target) if condition else "" for path, condition in self.fixed.items()}
        return [f"{path} on {labels}" if labels else str(path) for path, labels in on.items()]

    def sentences(self, low: bool) -> tuple[str, ...]:
        """Return the findings in words.

        Args:
            low: whether the combined loss is below the threshold.
        """
        known = [f"{component} after layer {layer}" for component, layer in self.known_at.items() if layer is not None]
        missing = [component for component, layer in self.known_at.items() if layer is None]
        said = []
        if self.fixed:
            said.append(f"These fixed patterns lead from role to role: {'; '.join(self._fixed_said)}.")
        if known:
            everywhere = " (paths with a condition count as if they held on all instances)" if self.conditional else ""
            known_at = f"these are known where they are read{everywhere}: {', '.join(known)}"
            said.append(f"By the circuit's paths alone, {known_at}.")
        if missing:
            said.append(
                f"By the circuit's paths alone, these are never known where they are read: {', '.join(missing)}."
            )
        if self.forbidden:
            said.append(
                "The ends of these paths share no information that determines where to look (Assumption 1): "
                f"{_listed(self.forbidden)}."
            )
        if self.redundant:
            said.append(f"These paths carry nothing new: {_listed(self.redundant)}.")
        if self.passed and not low:
            said.append("The circuit passes the flow check, but its loss is not low: the model works another way.")
        if low and not self.passed:
            said.append(
                "The loss is low all the same, because replaced attention does not depend on shared information. The "
                "circuit lacks the paths that tell the model's own heads where to look."
            )
        return tuple(said)

    def to_json(self, low: bool) -> dict[str, Any]:
        """Return plain numbers and texts; docs/reports.md explains every key."""
        return {
            "passed": self.passed,
            "known_at": self.known_at,
            "redundant": [*map(str, self.redundant)],
            "forbidden": [*map(str, self.forbidden)],
            "fixed_paths": [*self._fixed_said],
            "sentences": [*self.sentences(low)],
        }


def flow_check(circuit: Circuit, problem: Problem) -> FlowCheck | None:
    """Check whether a circuit's paths could carry the answer.

    Returns None if the problem does not say what each position knows at the start (``layout``).
    """
    if not isinstance(problem, LaidOut):
        return None
    roles = problem.examples(ROLE_EXAMPLES, seed=0).roles
    explicit = with_fixed_paths(circuit, roles)
    flow = circuit_flow(explicit, problem.layout)
    carried = [one for one in flow.carried if one.path.source in problem.roles]
    layers = {component: flow.layers_until(role, component) for component, role in problem.read_at.items()}
    return FlowCheck(
        {component: None if after is None else after - 1 for component, after in layers.items()},
        tuple(one.path for one in carried if one.allowed and not one.new),
        tuple(one.path for one in carried if not one.allowed),
        fixed_paths(circuit, roles),
        any(explicit.condition(path) for path in explicit.paths),
    )


def _listed(paths: tuple[AttentionPath, ...]) -> str:
    return "; ".join(map(str, paths))
