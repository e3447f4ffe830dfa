"""Flow check: could a circuit's paths carry the answer, by information flow? The weights are not used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Int

from circuits.circuit import AttentionPath, Circuit
from circuits.entrance import entrance
from circuits.flow.circuit_flow import circuit_flow
from circuits.flow.fixed_paths import FixedPaths, fixed_paths, with_fixed_paths
from circuits.flow.layout import Layout
from circuits.given import examples_of
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.mechanisms.one_hot import OneHot
from circuits.roles import Roles
from circuits.task import Task
from circuits.utils.lazy import torch

ROLE_EXAMPLES = 256  # examples that give the positions of roles


@runtime_checkable
class LaidOut(Protocol):
    """A task with a layout of its roles; its loss components are pieces of information, too."""

    @property
    def layout(self) -> Layout:
        """Every role with its pieces."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every loss component, the role at which it is read."""


@dataclass(frozen=True)
class FlowCheck:
    """The result of the flow check: the information that the paths of a circuit carry under Assumption 1.

    A path with a condition carries on those instances only on which it holds, so each instance has a flow of its own.

    Attributes:
        known_at: for every loss component, the layer after which it is known where it is read, in all instances in
            which it ever is; None if it never is.
        known_in: for every loss component, the share of instances in which it is known where it is read.
        by_label: for the components that are known in some instances only, this share split by the main group.
        redundant: the paths that carry nothing new to their source in any instance.
        forbidden: the paths that Assumption 1 forbids in every instance: below their layer, their ends share no piece
            that determines where to look.
        fixed: the paths of fixed patterns with their conditions; they carry information like all other paths.
    """

    known_at: dict[str, int | None]
    known_in: dict[str, float]
    by_label: dict[str, ByLabel]
    redundant: tuple[AttentionPath, ...]
    forbidden: tuple[AttentionPath, ...]
    fixed: FixedPaths

    @property
    def passed(self) -> bool:
        """Whether every loss component is known where it is read, in all instances."""
        return all(share == 1 for share in self.known_in.values())

    @property
    def _fixed_said(self) -> list[str]:
        """The paths of fixed patterns with their conditions, such as ``L1H0 query -> pair1.second on slot 0, 2``."""
        on = {path: condition.text(path.target) if condition else "" for path, condition in self.fixed.items()}
        return [f"{path} on {labels}" if labels else str(path) for path, labels in on.items()]

    def _known_said(self, component: str) -> str:
        """Return after which layer a component is known, and in which instances if not in all."""
        said, split = f"{component} after layer {self.known_at[component]}", self.by_label.get(component)
        if self.known_in[component] == 1:
            return said
        return f"{said} in {self.known_in[component]:.2f} of the instances{f' ({split})' if split else ''}"

    def sentences(self, low: bool) -> tuple[str, ...]:
        """Return the findings in words.

        Args:
            low: whether the combined loss is below the threshold.
        """
        known = [self._known_said(component) for component, layer in self.known_at.items() if layer is not None]
        missing = [component for component, layer in self.known_at.items() if layer is None]
        said = []
        if self.fixed:
            said.append(f"These fixed patterns lead from role to role: {'; '.join(self._fixed_said)}.")
        if known:
            said.append(f"By the circuit's paths alone, these are known where they are read: {', '.join(known)}.")
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
                "circuit lacks the paths that tell the model's own heads where to look, or information takes a way "
                "that no path names, such as a copy at another position."
            )
        return tuple(said)

    def to_json(self, low: bool) -> dict[str, Any]:
        """Return plain numbers and texts; docs/reports.md explains every key."""
        return {
            "passed": self.passed,
            "known_at": self.known_at,
            "known_in": self.known_in,
            "by_label": {component: split.to_json("known_in") for component, split in self.by_label.items()},
            "redundant": [*map(str, self.redundant)],
            "forbidden": [*map(str, self.forbidden)],
            "fixed_paths": [*self._fixed_said],
            "sentences": [*self.sentences(low)],
        }


@entrance
def flow_check(circuit: Circuit, task: Task) -> FlowCheck | None:
    """Check whether a circuit's paths could carry the answer, on the instances of ``ROLE_EXAMPLES`` examples.

    Returns None if the task does not say what each position knows at the start (``layout``).
    """
    if not isinstance(task, LaidOut):
        return None
    roles = examples_of(task, ROLE_EXAMPLES, 0).roles
    explicit = with_fixed_paths(circuit, roles)
    held, of_instance = _held(explicit, roles)
    flows = [circuit_flow(explicit, task.layout, only=paths) for paths in held]
    named = {role for path in explicit.paths for role in (path.source, path.target)}
    known_at: dict[str, int | None] = {}
    known_in: dict[str, float] = {}
    by_label: dict[str, ByLabel] = {}
    for component, role in task.read_at.items():
        layers = [flow.layers_until(role, component) for flow in flows]
        known_at[component] = max((after for after in layers if after is not None), default=0) - 1
        known = torch.tensor([after is not None for after in layers])[of_instance]
        if role in roles.shared:  # known to one instance is known to all
            known = known.any(dim=1, keepdim=True).expand_as(known)
        known_in[component] = known.double().mean().item()
        if not known.any():
            known_at[component] = None
        elif not known.all() and has_few_labels(roles):
            split = over_labels(known.double(), torch.ones_like(known), roles)
            found = ByLabel.of(split, roles, named)
            if found:
                by_label[component] = found
    carried = [one for flow in flows for one in flow.carried if one.path.source in task.roles]
    paths = sorted({one.path for one in carried})
    allowed, useful = ({one.path for one in carried if one.allowed}, {one.path for one in carried if one.new})
    return FlowCheck(
        known_at,
        known_in,
        by_label,
        tuple(path for path in paths if path in allowed and path not in useful),
        tuple(path for path in paths if path not in allowed),
        fixed_paths(circuit, roles),
    )


def _held(circuit: Circuit, roles: Roles) -> tuple[list[set[AttentionPath]], Int[torch.Tensor, "example instance"]]:
    """Return the different sets of paths that hold together on an instance, and the set of every instance."""
    holds = torch.ones((*roles.positions[:, 0].shape, len(circuit.paths)), dtype=torch.bool)
    if not circuit.paths:
        return [set()], torch.zeros(holds.shape[:2], dtype=torch.long)
    for index, path in enumerate(circuit.paths):
        mechanism = circuit.heads[path.head]
        if isinstance(mechanism, OneHot):
            holds[..., index] = mechanism.holds(path.source, path.target, roles)
    sets, of_instance = holds.flatten(0, 1).unique(dim=0, return_inverse=True)
    held = [{path for path, there in zip(circuit.paths, own, strict=True) if there} for own in sets.tolist()]
    return held, of_instance.reshape(holds.shape[:2])


def _listed(paths: tuple[AttentionPath, ...]) -> str:
    return "; ".join(map(str, paths))
