"""The result of a search for equivalent circuits: how many there are, what they share, and what replaces what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from circuits.circuit import AttentionPath, Circuit
from circuits.losses.loss import Loss
from circuits.utils.lazy import pandas

SAID = 10  # the most replacements that get a sentence
Paths = frozenset[AttentionPath]


@dataclass(frozen=True)
class EquivalentCircuit:
    """A minimal circuit with a loss below the threshold.

    Attributes:
        paths: its paths.
        circuit: the circuit, with a mechanism for every head.
        loss: its loss, all heads replaced, on all examples.
    """

    paths: Paths
    circuit: Circuit
    loss: Loss


@dataclass(frozen=True)
class Replacement:
    """What one circuit has in the place of what another has.

    Attributes:
        gone: the paths that only the first circuit has.
        instead: the paths that only the other one has.
    """

    gone: Paths
    instead: Paths

    def __str__(self) -> str:
        return f"{_listed(self.gone)} can be replaced with {_listed(self.instead)}"


@dataclass(frozen=True)
class Equivalence:
    """All minimal circuits that were found, and how far the search went.

    Attributes:
        own: the paths of the circuit that was asked about.
        circuits: the minimal circuits with a loss below the threshold, fewest paths and lowest loss first.
        undecided: sets of paths whose loss is within three standard errors of the threshold, and which contain none of
            the circuits.
        candidates: all candidate paths.
        left_out: paths that attention shows and that were no candidates.
        own_loss: the loss of the circuit that was asked about.
        threshold: a loss below it counts as low.
        more: how many paths more than the smallest circuit the others may have.
        all_sets: whether no set of paths was ruled out by the sets that contain it.
        searched_to: sets of at most this many paths were searched.
        searched_all: whether the search went as far as asked.
        n_sets: the number of sets that were run.
        n_evaluations: the number of sequences that were run.
    """

    own: tuple[AttentionPath, ...]
    circuits: tuple[EquivalentCircuit, ...]
    undecided: tuple[Paths, ...]
    candidates: tuple[AttentionPath, ...]
    left_out: tuple[AttentionPath, ...]
    own_loss: Loss
    threshold: float
    more: int
    all_sets: bool
    searched_to: int
    searched_all: bool
    n_sets: int
    n_evaluations: int

    @property
    def decision(self) -> Literal["holds", "fails", "undecided"]:
        """Whether the circuit is the only one.

        It fails if there are two circuits of which no undecided set is a part. It holds only if all sets were run: a
        set can pass although a larger one fails, so a set that was ruled out by a larger one may be another circuit.
        """
        clear = self.clear
        if len(clear) > 1 or (clear and not clear[0].paths <= {*self.own}):
            return "fails"
        every = self.all_sets and self.searched_all
        return "holds" if len(self.circuits) == 1 and not self.undecided and every else "undecided"

    @property
    def clear(self) -> tuple[EquivalentCircuit, ...]:
        """The circuits of which no undecided set is a part; the others may not be minimal."""
        return tuple(one for one in self.circuits if not any(paths < one.paths for paths in self.undecided))

    @property
    def shared(self) -> tuple[AttentionPath, ...]:
        """The paths that all circuits have."""
        return tuple(path for path in self.candidates if self.times[path] == len(self.circuits) > 0)

    @property
    def in_some(self) -> tuple[AttentionPath, ...]:
        """The paths that some circuits have, and others do not."""
        return tuple(path for path in self.candidates if 0 < self.times[path] < len(self.circuits))

    @property
    def not_needed(self) -> tuple[AttentionPath, ...]:
        """The paths of the circuit that none of the circuits has; they may still tell heads above where to attend."""
        return tuple(path for path in self.own if not self.times[path])

    @cached_property
    def times(self) -> Counter[AttentionPath]:
        """The number of circuits that have each path."""
        return Counter(path for one in self.circuits for path in one.paths)

    @property
    def reference(self) -> EquivalentCircuit | None:
        """The circuit that replacements start from: the first one that is part of the one asked about, else the first.

        It is None if no circuit was found.
        """
        return next((one for one in self.circuits if one.paths <= {*self.own}), next(iter(self.circuits), None))

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """What the other circuits have in the place of paths of ``reference``, fewest paths first; no other within."""
        if self.reference is None:
            return ()
        start = self.reference.paths
        every = [Replacement(start - one.paths, one.paths - start) for one in self.circuits if one.paths != start]
        every.sort(key=lambda one: (len(one.gone | one.instead), sorted(one.gone), sorted(one.instead)))
        kept: list[Replacement] = []
        for one in every:
            if not any(other.gone <= one.gone and other.instead <= one.instead for other in kept):
                kept.append(one)
        return tuple(kept)

    @property
    def bound(self) -> str:
        """How far the search went, in words."""
        which = f"sets of at most {self.searched_to} of {len(self.candidates)} candidate paths"
        end = (
            ""
            if self.searched_all
            else "; larger sets would have been too many, and were only reached by exchanging paths one for one"
        )
        if self.all_sets:
            return f"The search ran all {which}, but those that contain a circuit{end}."
        return (
            f"The search covers {which}{end}. It ran {self.n_sets:,}, and takes for granted that a set fails if a set "
            "that contains it does."
        )

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in words."""
        n, low = len(self.circuits), f"a loss below {self.threshold:g} with all heads replaced"
        sizes = sorted({len(one.paths) for one in self.circuits})
        paths = " or ".join(map(str, sizes)) + (" path" if sizes == [1] else " paths")
        if self.decision == "holds":
            first = f"The circuit is the only one: no other set of candidate paths is minimal and has {low}."
        elif self.decision == "fails":
            many = f"{n} circuits of {paths} are minimal and have" if n > 1 else f"one of {paths} is minimal and has"
            first = f"The circuit is not the only one: {many} {low}."
        elif n == 1 and not self.undecided:
            first = "No other circuit was found. Whether it is the only one is undecided: not all sets were run."
        else:
            first = (
                f"It is undecided whether the circuit is the only one: {n} of {paths or '0 paths'} found, with {low}."
            )
        said = [first]
        if n > 1:
            said.append(f"All of them have {_listed(self.shared)}." if self.shared else "No path is in all of them.")
        said += [f"{one}." for one in self.replacements[:SAID]]
        if len(self.replacements) > SAID:
            said.append(f"{len(self.replacements) - SAID} more replacements are in the table.")
        if n and self.not_needed:
            said.append(
                f"None needs {_listed(self.not_needed)} with all heads replaced; such a path may tell a head above "
                "where to attend."
            )
        if self.undecided:
            doubt = (
                f"; {n - len(self.clear)} of the {n} contain one, and may not be minimal" if len(self.clear) < n else ""
            )
            said.append(f"{len(self.undecided)} sets have a loss too close to the threshold to decide{doubt}.")
        said.append(self.bound)
        if self.left_out:
            said.append(
                f"No candidates, because they do not go with the circuit's own paths: {_listed(self.left_out)}."
            )
        return tuple(said)

    def table(self) -> pandas.DataFrame:
        """Return one row for every circuit and path: columns ``circuit``, ``loss``, ``loss_se``, ``paths``, ``path``,
        ``own`` (whether the circuit that was asked about has the path) and ``in_all``.
        """
        columns = ("circuit", "loss", "loss_se", "paths", "path", "own", "in_all")
        return pandas.DataFrame(
            [
                (
                    *(place, one.loss.mean, one.loss.standard_error, len(one.paths)),
                    *(str(path), path in self.own, path in self.shared),
                )
                for place, one in enumerate(self.circuits)
                for path in self.candidates
                if path in one.paths
            ],
            columns=[*columns],
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "decision": self.decision,
            "threshold": self.threshold,
            "own": {"paths": [*map(str, self.own)], "loss": self.own_loss.to_json()},
            "circuits": [
                {"paths": _texts(one.paths), "loss": one.loss.to_json(), "has_undecided_part": one not in self.clear}
                for one in self.circuits
            ],
            "shared": [*map(str, self.shared)],
            "in_some": {str(path): self.times[path] for path in self.in_some},
            "not_needed": [*map(str, self.not_needed)],
            "replacements": [{"gone": _texts(one.gone), "instead": _texts(one.instead)} for one in self.replacements],
            "undecided": [_texts(paths) for paths in self.undecided],
            "candidates": [*map(str, self.candidates)],
            "left_out": [*map(str, self.left_out)],
            "search": {
                "all_sets": self.all_sets,
                "finished": self.searched_all,
                "most_paths": self.searched_to,
                "more_than_smallest": self.more,
                "sets": self.n_sets,
                "evaluations": self.n_evaluations,
            },
            "sentences": [*self.sentences()],
        }


def _texts(paths: Paths) -> list[str]:
    return [*map(str, sorted(paths))]


def _listed(paths: Paths | tuple[AttentionPath, ...]) -> str:
    """Return paths as a list in words; ``nothing`` for none."""
    each = [*map(str, sorted(paths))] or ["nothing"]
    return " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)
