"""Senders: the parts of a model that write into the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

from circuits.heads import Head


@dataclass(frozen=True, order=True)
class Sender:
    """A part of the model that writes into the residual stream: ``embed``, ``L2H0`` or ``L2 MLP``.

    Attributes:
        layer: the layer; -1 for the embedding.
        is_mlp: whether this is the layer's MLP; it comes after the layer's heads.
        index: the index of a head in its layer.
    """

    layer: int
    is_mlp: bool = False
    index: int = 0

    @property
    def head(self) -> Head | None:
        """The head, if the sender is one."""
        return None if self.is_mlp or self.layer < 0 else Head(self.layer, self.index)

    def __str__(self) -> str:
        if self.is_mlp:
            return f"L{self.layer} MLP"
        return {-1: "embed", -2: "all senders"}.get(self.layer) or str(self.head)


EMBED, ALL = Sender(-1), Sender(-2)  # all senders at once
