"""The result of path patching: which sender each head finds its place by, and what it fetches from whom."""

from __future__ import annotations

from typing import Literal

from circuits.circuit import AttentionPath
from circuits.losses.by_label import ByLabel
from circuits.losses.loss import Mean
from circuits.results import Decision, Result, table
from circuits.utils.lazy import pandas

# Senders are texts: ``embed``, ``L2H0``, ``L2 MLP``, or all of them at once.
EMBED, ALL = "embed", "all senders"


class Edge(Result):
    """What a sender wrote, read by one input of one attention path.

    Attributes:
        sender: the part of the model that wrote it: ``embed``, ``L2H0`` or ``L2 MLP``.
        path: the attention path that reads it.
        input: ``Q`` (what the sender wrote at the path's source), ``K`` or ``V`` (at its target).
        attention_lost: the attention on the target that is lost; None for values, which move no attention.
        loss_returned: the increase of the loss; None if the edge did not pass the screening.
        by_label: the attention lost, split by the main group; None without one. An average over all labels would hide a
            sender that tells the head its place for some of them only.
        decision: ``holds`` if the edge loses at least ``followed`` of the attention (Q, K), or returns at least
            ``carried`` of the loss that all senders at once return (V); this loss must be above zero by three standard
            errors. ``undecided`` within three standard errors of the threshold. Else ``fails``.
    """

    sender: str
    path: AttentionPath
    input: Literal["Q", "K", "V"]
    attention_lost: Mean | None
    loss_returned: Mean | None
    by_label: ByLabel | None
    decision: Decision

    @property
    def sender_role(self) -> str:
        """The role at which the sender wrote."""
        return self.path.source if self.input == "Q" else self.path.target

    @property
    def effect(self) -> Mean | None:
        """The attention lost (Q, K), or the loss returned (V)."""
        return self.loss_returned if self.input == "V" else self.attention_lost

    def __str__(self) -> str:
        said = [f"{self.sender} at {self.sender_role}, read by {self.path} ({self.input})"]
        said += [f"attention lost {self.attention_lost}"] if self.attention_lost else []
        said += [str(self.by_label)] if self.by_label else []
        loss = self.loss_returned
        said += [f"loss returned {loss.mean:.3f} ± {loss.standard_error:.3f}"] if loss else []
        return "; ".join(said)


class Composition(Result):
    """The edges between the senders of a model and the attention paths of a circuit.

    Attributes:
        attention: for every path, the head's attention on its target in the unablated model, where the path holds.
        edges: all edges, by path, input and sender. The last of each input is that of all senders at once: how much the
            input matters. It can matter without any edge that holds, if several senders write the same.
        n_examples: the number of examples.
    """

    attention: dict[AttentionPath, Mean]
    edges: tuple[Edge, ...]
    n_examples: int

    def of(self, path: AttentionPath | None = None, which: str = "QKV") -> tuple[Edge, ...]:
        """Return the edges of single senders that hold, of all paths or of one, in some of its inputs."""
        there = (edge for edge in self.edges if edge.decision == "holds" and edge.sender != ALL)
        return tuple(edge for edge in there if path in (None, edge.path) and edge.input in which)

    def table(self) -> pandas.DataFrame:
        """Return a row for every edge."""
        return table(self.edges)

    def __str__(self) -> str:
        return "\n".join(map(str, self.of()))
