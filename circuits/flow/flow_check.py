"""Flow check: could a circuit carry the answer, by information flow? The weights are not used."""

from __future__ import annotations

from circuits.circuit import AttentionPath, Circuit
from circuits.entrance import entrance
from circuits.flow.fixed_paths import fixed_paths
from circuits.flow.position_flow import PositionFlow
from circuits.given import examples_of
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.results import Result, Verdict
from circuits.split import at_most
from circuits.task import LaidOut, Task
from circuits.utils.lazy import torch

ROLE_EXAMPLES = 256  # examples that give the positions of roles


class FlowCheck(Result):
    """The result of the flow check: the information that the paths of a circuit carry under Assumption 1.

    A path with a condition carries on those instances only on which it holds, so each instance has a flow of its own.
    A head that attends by position carries whatever is known there (position_flow.py).

    Attributes:
        verdict: holds if every loss component is known where it is read, in all instances; else fails. A circuit with a
            low loss may fail: replaced attention does not depend on shared information.
        known_at: for every loss component, the layer after which it is known where it is read, in all instances in
            which it ever is; None if it never is.
        known_in: for every loss component, the share of instances in which it is known where it is read.
        known_by_label: for the components that are known in some instances only, this share split by the main group.
        redundant: the paths that carry nothing new to their source in any instance.
        forbidden: the paths that Assumption 1 forbids in every instance: below their layer, their ends share no piece
            that determines where to look.
        fixed_paths: the paths of fixed patterns with their conditions, such as ``L1H0 query -> key on slot 0, 2``; they
            carry information like all other paths.
    """

    verdict: Verdict
    known_at: dict[str, int | None]
    known_in: dict[str, float]
    known_by_label: dict[str, ByLabel]
    redundant: tuple[AttentionPath, ...]
    forbidden: tuple[AttentionPath, ...]
    fixed_paths: tuple[str, ...]


@entrance
def flow_check(circuit: Circuit, task: Task) -> FlowCheck | None:
    """Check whether a circuit's paths could carry the answer, on the instances of ``ROLE_EXAMPLES`` examples.

    Returns None if the task does not say what each position knows at the start (``layout``).
    """
    if not isinstance(task, LaidOut):
        return None
    examples = examples_of(task, at_most(task, ROLE_EXAMPLES), 0)
    roles = examples.roles
    flow = PositionFlow(circuit, task.layout, roles, examples.inputs.shape[1])
    named = {role for path in circuit.paths if path.joins_roles for role in (path.source, path.target)}
    known_at: dict[str, int | None] = {}
    known_in: dict[str, float] = {}
    by_label: dict[str, ByLabel] = {}
    for component, role in task.read_at.items():
        known = flow.knows(component, role)
        ever, first = known[-1], known.int().argmax(dim=0)  # information is never lost
        known_at[component] = int(first[ever].max()) - 1 if ever.any() else None
        known_in[component] = ever.double().mean().item()
        if 0 < known_in[component] < 1 and has_few_labels(roles):
            split = ByLabel.of(over_labels(ever.double(), torch.ones_like(ever), roles), roles, named)
            by_label |= {component: split} if split else {}
    fixed = fixed_paths(circuit, roles).items()
    when = {name: "" if layer is None else f" (after layer {layer})" for name, layer in known_at.items()}
    each = ", ".join(f"{name} {share:.2f}{when[name]}" for name, share in known_in.items())
    said = f"Share of instances in which the circuit brings each answer to where it is read: {each}."
    holds = all(share == 1 for share in known_in.values())
    between = {path for path in circuit.paths if path.joins_roles}
    return FlowCheck(
        verdict=Verdict(name="flow check", decision="holds" if holds else "fails", sentence=said),
        known_at=known_at,
        known_in=known_in,
        known_by_label=by_label,
        redundant=tuple(sorted(flow.allowed - flow.useful)),
        forbidden=tuple(sorted(between - flow.allowed)),
        fixed_paths=tuple(f"{path} on {on.text(path.target)}" if on else str(path) for path, on in fixed),
    )
