"""Flow check: could a circuit's paths carry the answer, by information flow? The weights are not used."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Bool, Int

from circuits.circuit import AttentionPath, Circuit
from circuits.entrance import entrance
from circuits.flow.circuit_flow import circuit_flow
from circuits.flow.fixed_paths import fixed_paths
from circuits.given import examples_of
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import POSITION, OneHot
from circuits.results import Result, Verdict
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import LaidOut, Task
from circuits.utils.lazy import torch

ROLE_EXAMPLES = 256  # examples that give the positions of roles


class FlowCheck(Result):
    """The result of the flow check: the information that the paths of a circuit carry under Assumption 1.

    A path with a condition carries on those instances only on which it holds, so each instance has a flow of its own.
    A head that attends by position carries from the role that stands there in the instance, if any, and needs to share
    nothing with it.

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
    roles = examples_of(task, ROLE_EXAMPLES, 0).roles
    held, of_instance = _held(circuit, roles)
    by_content = {*circuit.paths}
    flows = [circuit_flow(circuit, task.layout, only=paths & by_content, fixed=paths - by_content) for paths in held]
    named = {role for paths in held for path in paths for role in (path.source, path.target)}
    known_at: dict[str, int | None] = {}
    known_in: dict[str, float] = {}
    by_label: dict[str, ByLabel] = {}
    for component, role in task.read_at.items():
        layers = [next((t for t, known in enumerate(flow.known) if component in known[role]), None) for flow in flows]
        known_at[component] = max((after - 1 for after in layers if after is not None), default=None)
        known = torch.tensor([after is not None for after in layers])[of_instance]
        if role in roles.shared:  # known to one instance is known to all
            known = known.any(dim=1, keepdim=True).expand_as(known)
        known_in[component] = known.double().mean().item()
        if 0 < known_in[component] < 1 and has_few_labels(roles):
            split = ByLabel.of(over_labels(known.double(), torch.ones_like(known), roles), roles, named)
            by_label |= {component: split} if split else {}
    carried = [one for flow in flows for one in flow.carried if one.path.source in task.roles]
    allowed, useful = ({one.path for one in carried if one.allowed}, {one.path for one in carried if one.new})
    fixed = fixed_paths(circuit, roles).items()
    when = {name: "" if layer is None else f" (after layer {layer})" for name, layer in known_at.items()}
    each = ", ".join(f"{name} {share:.2f}{when[name]}" for name, share in known_in.items())
    said = f"Share of instances in which the paths bring each answer to where it is read: {each}."
    holds = all(share == 1 for share in known_in.values())
    return FlowCheck(
        verdict=Verdict(name="flow check", decision="holds" if holds else "fails", sentence=said),
        known_at=known_at,
        known_in=known_in,
        known_by_label=by_label,
        redundant=tuple(sorted(allowed - useful)),
        forbidden=tuple(sorted({one.path for one in carried} - allowed)),
        fixed_paths=tuple(f"{path} on {on.text(path.target)}" if on else str(path) for path, on in fixed),
    )


def _held(circuit: Circuit, roles: Roles) -> tuple[list[set[AttentionPath]], Int[torch.Tensor, "example instance"]]:
    """Return the different sets of paths that hold together on an instance, and the set of every instance."""
    there: dict[AttentionPath, torch.Tensor] = {}
    everywhere = torch.ones_like(roles.positions[:, 0], dtype=torch.bool)
    for path in circuit.paths:
        mechanism = circuit.heads[path.head]
        one_hot = isinstance(mechanism, OneHot)
        there[path] = mechanism.holds(path.source, path.target, roles) if one_hot else everywhere
    for path, on in _by_position(circuit, roles):
        there[path] = on if path not in there else there[path] | on
    if not there:
        return [set()], torch.zeros_like(roles.positions[:, 0])
    sets, of_instance = torch.stack([*there.values()], dim=2).flatten(0, 1).unique(dim=0, return_inverse=True)
    held = [{path for path, here in zip(there, row, strict=True) if here} for row in sets.tolist()]
    return held, of_instance.reshape(roles.positions[:, 0].shape)


def _by_position(
    circuit: Circuit, roles: Roles
) -> Iterator[tuple[AttentionPath, Bool[torch.Tensor, "example instance"]]]:
    """Yield the paths that fixed patterns and rows to fixed positions have on some instances, and on which.

    A fixed pattern has one where the position of the source gives that of the target ``attended`` or more; that of the
    other rows of a one-hot head counts where no row of the source holds.
    """
    for head, mechanism in circuit.heads.items():
        rest = mechanism.elsewhere if isinstance(mechanism, OneHot) else mechanism
        for source in roles.distinct:
            at = roles.group("position", source)
            fixed, free = [], torch.ones_like(at, dtype=torch.bool)
            if isinstance(mechanism, OneHot):
                for ends in (row for row in mechanism.rows if row[0] == source):
                    holds = mechanism.holds(*ends, roles)
                    free &= ~holds
                    if place := POSITION.fullmatch(ends[1]):
                        fixed.append((int(place[1]), holds))
            for target in roles.in_layer(head.layer).before(source):
                to = roles.group("position", target)
                there = torch.zeros_like(free)
                for number, holds in fixed:
                    there |= holds & (to == number)
                if isinstance(rest, FixedPattern):
                    there |= free & (rest.weights[at.cpu(), to.cpu()] >= current().attended).to(at.device)
                if there.any():
                    yield AttentionPath(head, source, target), there
