"""The edges of a circuit: which sender each head finds its place by, and what it fetches from whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from circuits.circuit import AttentionPath
from circuits.composition.sender import Sender
from circuits.losses.by_label import ByLabel
from circuits.losses.mean import Mean
from circuits.utils.lazy import pandas

# Attention lost, from which on a Q or K edge is found. On transformers A to C, 363 of 454 edges lose less than 0.02 and
# 46 more than 0.4. Between them there is no gap, but few edges are near 0.25.
FOLLOWED = 0.25
# A V edge's loss returned, as a share of that of all senders at once. A squared error grows with the square of what is
# exchanged, so an edge with half of what a path carries returns a quarter. The threshold is a little lower: such an
# edge is found, and not undecided. There is no gap on transformers A to D.
CARRIED = 0.22

Decision = Literal["found", "undecided", "not found"]


@dataclass(frozen=True)
class Edge:
    """What a sender wrote, read by one input of one attention path.

    Attributes:
        sender: the part of the model that wrote it.
        path: the attention path that reads it.
        input: ``Q`` (what the sender wrote at the path's source), ``K`` or ``V`` (at its target).
        attention_lost: the attention on the target that is lost; None for values, which move no attention.
        loss_returned: the increase of the loss; None if the edge did not pass the screening.
        by_label: the attention lost, split by the main group; None without one. An average over all labels would hide a
            sender that tells the head its place for some of them only.
        score: the composition score of the two heads (``composition_scores.py``); None if the sender is no head.
        rank: the share of all other pairs of heads with a lower score; None without another pair.
        decision: ``found`` if the edge loses at least ``FOLLOWED`` of the attention (Q, K), or returns at least
            ``CARRIED`` of the loss that all senders at once return (V); this loss must be above zero by three standard
            errors. ``undecided`` within three standard errors of the threshold. Else ``not found``.
        sender_paths: the circuit's paths of the sending head with this role as their source.
    """

    sender: Sender
    path: AttentionPath
    input: str
    attention_lost: Mean | None
    loss_returned: Mean | None
    by_label: ByLabel | None
    score: float | None
    rank: float | None
    decision: Decision
    sender_paths: tuple[AttentionPath, ...]

    @property
    def sender_role(self) -> str:
        """The role at which the sender wrote."""
        return self.path.source if self.input == "Q" else self.path.target

    def __str__(self) -> str:
        return f"{self.sender} at {self.sender_role} -> {self.path} ({self.input})"

    @property
    def said(self) -> str:
        """The edge in a sentence about its path: ``L2H0 at query (Q: 0.97 of its attention lost)``."""
        effect = self.loss_returned if self.attention_lost is None else self.attention_lost
        what = "loss returned" if self.attention_lost is None else "of its attention lost"
        digits = 3 if self.attention_lost is None else 2
        number = "not measured" if effect is None else f"{effect.mean:.{digits}f} {what}"
        if self.by_label and self.by_label.highest - self.by_label.lowest >= FOLLOWED:
            number += f", {self.by_label}"
        return f"{self.sender} at {self.sender_role} ({self.input}: {number})"

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "sender": str(self.sender),
            "sender_role": self.sender_role,
            "path": str(self.path),
            "input": self.input,
            "attention_lost": self.attention_lost and self.attention_lost.to_json(),
            "loss_returned": self.loss_returned and self.loss_returned.to_json(),
            "by_label": self.by_label and self.by_label.to_json("lost"),
            "score": self.score,
            "rank": self.rank,
            "decision": self.decision,
            "sender_paths": [*map(str, self.sender_paths)],
        }


@dataclass(frozen=True)
class Composition:
    """The edges between the senders of a model and the attention paths of a circuit.

    Attributes:
        attention: for every path, the head's own attention on its target, where the path holds.
        edges: all edges, by path, input and sender.
        whole: the same for all senders at once: how much each input matters. It can matter without any edge found, if
            several senders write the same.
        n_examples: the number of examples.
    """

    attention: Mapping[AttentionPath, Mean]
    edges: tuple[Edge, ...]
    whole: tuple[Edge, ...]
    n_examples: int

    @property
    def found(self) -> tuple[Edge, ...]:
        """The edges that are found."""
        return tuple(edge for edge in self.edges if edge.decision == "found")

    @property
    def undecided(self) -> tuple[Edge, ...]:
        """The edges within three standard errors of their threshold."""
        return tuple(edge for edge in self.edges if edge.decision == "undecided")

    def of(self, path: AttentionPath, which: str = "QKV") -> tuple[Edge, ...]:
        """Return the found edges of a path, in some of its inputs."""
        return tuple(edge for edge in self.found if edge.path == path and edge.input in which)

    def table(self) -> pandas.DataFrame:
        """Return a row for every edge."""
        rows = []
        for edge in (*self.edges, *self.whole):
            row: dict[str, Any] = edge.to_json() | {
                "sender_paths": ", ".join(map(str, edge.sender_paths)),
                "by_label": str(edge.by_label or ""),
            }
            for effect, mean in (("attention_lost", edge.attention_lost), ("loss_returned", edge.loss_returned)):
                row[effect], row[f"{effect}_se"] = (mean.mean, mean.standard_error) if mean else (None, None)
            rows.append(row)
        return pandas.DataFrame(rows)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for every path: how its head finds its place, and what it fetches."""
        return tuple(map(self.sentence, self.attention))

    def sentence(self, path: AttentionPath) -> str:
        """Return how the head of a path finds its place, and what it fetches."""
        if not self.attention[path].n_examples:
            return f"{path} holds on no instance of the {self.n_examples} examples."
        return f"{path} {self._place(path)}{self._fetched(path)}.{self._open(path)}"

    def _place(self, path: AttentionPath) -> str:
        if by := [*self._by(path, "Q"), *self._by(path, "K")]:
            return f"finds its place by {_listed(by)}"
        return "does not lose its place by any exchange: it looks at a fixed position, or hardly at its target"

    def _fetched(self, path: AttentionPath) -> str:
        by = self._by(path, "V")
        return f", and fetches what was written by {_listed(by)}" if by else ""

    def _by(self, path: AttentionPath, which: str) -> list[str]:
        """Return the found edges in one input of a path; if none is, but this input matters, all senders together."""
        if edges := self.of(path, which):
            return [edge.said for edge in edges]
        whole = [edge for edge in self.whole if edge.path == path and edge.input == which and edge.decision == "found"]
        return [f"{edge.said}, but by none of them alone" for edge in whole]

    def _open(self, path: AttentionPath) -> str:
        edges = [edge for edge in self.undecided if edge.path == path]
        return f" Within three standard errors, so undecided: {_listed(edge.said for edge in edges)}." if edges else ""

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts of found and undecided edges, and of all senders; ``table`` has all edges."""
        return {
            "examples": self.n_examples,
            "attention": {str(path): mean.to_json() for path, mean in self.attention.items()},
            "edges": [edge.to_json() for edge in self.found],
            "undecided": [edge.to_json() for edge in self.undecided],
            "all_senders": [edge.to_json() for edge in self.whole],
            "sentences": [*self.sentences()],
        }


def _listed(said: Iterable[str]) -> str:
    return " and ".join(said)
