"""Could a circuit do what is asked of it, by information flow alone? No weights are looked at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from circuits.circuit import Circuit, Path
from circuits.fixed_paths import fixed_paths, with_fixed_paths
from circuits.flow import Layout, along
from circuits.problem import Problem

ROLE_EXAMPLES = 256  # that say where roles stand


@runtime_checkable
class LaidOut(Protocol):
    """A problem that knows with which pieces of information its roles start; its parts are pieces too."""

    @property
    def layout(self) -> Layout:
        """Every role with its pieces."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every part the role at which it is read."""


@dataclass(frozen=True)
class Soundness:
    """What the paths of a circuit carry, if each end takes only from those with whom it shares a piece.

    A path that is there on some chains only counts as if it were there on all.

    Attributes:
        arrivals: for every part that is asked for the layer with which it arrives where it is read; None if never.
        nothing_new: the paths whose source knows all of it already.
        forbidden: the paths whose ends share nothing below their layer that tells where to look, against Assumption 1.
        fixed: the paths of fixed patterns, which carry like all others.
    """

    arrivals: dict[str, int | None]
    nothing_new: tuple[Path, ...]
    forbidden: tuple[Path, ...]
    fixed: tuple[Path, ...]

    @property
    def sound(self) -> bool:
        """Whether all that is asked for arrives."""
        return None not in self.arrivals.values()

    def sentences(self, low: bool) -> tuple[str, ...]:
        """The findings in words.

        Args:
            low: whether the loss is, with every head replaced by its mechanism.
        """
        there = [f"{part} with layer {layer}" for part, layer in self.arrivals.items() if layer is not None]
        missing = [part for part, layer in self.arrivals.items() if layer is None]
        said = []
        if self.fixed:
            said.append(f"Fixed patterns lead from role to role, too: {_listed(self.fixed)}.")
        if there:
            said.append(f"Along its paths alone the query comes to know {', '.join(there)}.")
        if missing:
            said.append(f"Along its paths alone {', '.join(missing)} cannot come to the query.")
        if self.forbidden:
            said.append(
                f"The ends share nothing below that tells where to look (Assumption 1) in: {_listed(self.forbidden)}."
            )
        if self.nothing_new:
            said.append(f"Nothing new is carried by: {_listed(self.nothing_new)}.")
        if self.sound and not low:
            said.append("By flow the circuit could do it, but the model does not by these paths: the loss is not low.")
        if low and not self.sound:
            said.append(
                "The loss is low all the same: prescribed attention needs no reason to look somewhere. What tells the "
                "heads of the model where to look is not in this circuit."
            )
        return tuple(said)

    def to_json(self, low: bool) -> dict[str, Any]:
        """As plain numbers and texts; docs/report.md says what each key holds."""
        return {
            "sound": self.sound,
            "arrivals": self.arrivals,
            "nothing_new": [*map(str, self.nothing_new)],
            "forbidden": [*map(str, self.forbidden)],
            "fixed_paths": [*map(str, self.fixed)],
            "sentences": [*self.sentences(low)],
        }


def soundness(circuit: Circuit, problem: Problem) -> Soundness | None:
    """Follow the information along a circuit's paths; None where the problem does not say what its roles know."""
    if not isinstance(problem, LaidOut):
        return None
    roles = problem.examples(ROLE_EXAMPLES, seed=0).roles
    flow = along(with_fixed_paths(circuit, roles), problem.layout)
    carried = [one for one in flow.carried if one.path.source in problem.roles]
    layers = {part: flow.arrival(role, part) for part, role in problem.read_at.items()}
    return Soundness(
        {part: None if after is None else after - 1 for part, after in layers.items()},
        tuple(one.path for one in carried if one.allowed and not one.new),
        tuple(one.path for one in carried if not one.allowed),
        fixed_paths(circuit, roles),
    )


def _listed(paths: tuple[Path, ...]) -> str:
    return "; ".join(map(str, paths))
