"""The result of self-consistency."""

from __future__ import annotations

from pydantic import Field

from circuits.circuit import AttentionPath, Head
from circuits.losses.by_label import ByLabel
from circuits.losses.loss import Loss, Mean
from circuits.results import Decision, Number, Result, Verdict
from circuits.settings import current
from circuits.tracing.numbers import above, columns
from circuits.utils.lazy import pandas


class PathAttention(Result):
    """A head's own attention along a path, on the instances with one label.

    Attributes:
        path: the path.
        label: the label of the main group at the path's target; None if the task has no group.
        attention: the attention on the target.
        others: the average attention on every other role of the instance, and ``elsewhere``.
    """

    path: AttentionPath
    label: int | None
    attention: Mean
    others: dict[str, Number]

    @property
    def decision(self) -> Decision:
        """Whether the attention is enough; undecided within three standard errors."""
        return above(self.attention, current().attended)

    @property
    def instead(self) -> str:
        """Where the head looks most, besides the path's target."""
        return max(self.others, key=lambda role: self.others[role])


class HeadConsistency(Result):
    """One head with paths, intact among replaced heads.

    Attributes:
        head: the head.
        decision: whether the head is self-consistent.
        loss: the loss with this head intact and all other heads of the circuit replaced.
        by_label: the loss for each label at the role with the highest; None if the task does not split its losses.
        attention: the head's own attention along each path, label by label.
        restored_by: for a head that is not self-consistent, the lower heads, each of which makes it self-consistent if
            it is intact as well, with the loss.
    """

    head: Head
    decision: Decision
    loss: Loss
    by_label: ByLabel | None
    attention: tuple[PathAttention, ...]
    restored_by: dict[Head, Loss] = Field(default_factory=dict)


class SelfConsistency(Result):
    """The heads with paths of a circuit, each by itself and all at once.

    Attributes:
        verdict: whether the circuit is self-consistent.
        heads: every head with paths, from the lowest layer up.
        unablated: the loss of the unablated model.
        combined: the loss with all heads of the circuit replaced.
        intact: the loss with all heads with paths intact, and all other heads of the circuit replaced.
        by_label: ``intact`` for each label at the role with the highest; None if the task does not split its losses.
        threshold: a loss below it counts as low.
        group: the task's main group, by whose labels attention and losses are split.
        unnamed: the number of heads below the highest head with paths that the circuit does not name, and that stay
            intact. With any, nothing is shown to hold.
        restored_by: if ``intact`` is not low, the other heads below the highest head with paths, each of which makes it
            low if it is intact as well, with the loss.
    """

    verdict: Verdict
    heads: tuple[HeadConsistency, ...]
    unablated: Loss
    combined: Loss
    intact: Loss
    by_label: ByLabel | None
    threshold: float
    group: str | None
    unnamed: int
    restored_by: dict[Head, Loss]

    def table(self) -> pandas.DataFrame:
        """Return one row for every path and label: the head's own attention, and the loss with the head intact.

        The last row has the loss with all heads with paths intact.
        """
        heads = (
            {
                "head": str(one.head),
                "head_decision": one.decision,
                **columns("loss", one.loss),
                "by_label": str(one.by_label or ""),
                "path": str(along.path),
                "label": along.label,
                **columns("attention", along.attention),
                "examples": along.attention.n_examples,
                "decision": along.decision,
                "instead": along.instead,
                "attention_instead": along.others[along.instead],
            }
            for one in self.heads
            for along in one.attention
        )
        intact = {"head": "all", "head_decision": self.verdict.decision, **columns("loss", self.intact)}
        together = intact | {"by_label": str(self.by_label or "")}
        return pandas.DataFrame([*heads, together]).astype({"label": "Int64", "examples": "Int64"})

    def __str__(self) -> str:
        return self.verdict.sentence
