"""The result of self-consistency: decisions, sentences, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from circuits.circuit import AttentionPath, Head
from circuits.losses.by_label import ByLabel
from circuits.losses.loss import Loss
from circuits.losses.mean import Mean
from circuits.utils.lazy import pandas

ENOUGH = 0.5  # attention along a path, as where a path is taken as emerged (paper, section 9.2)
ELSEWHERE = "elsewhere"  # other instances, and positions without a role
Decision = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class OwnAttention:
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
    others: Mapping[str, float]

    @property
    def decision(self) -> Decision:
        """Whether the attention is enough; undecided within three standard errors."""
        return _decided(self.attention.mean >= ENOUGH, self.attention.near(ENOUGH))

    @property
    def instead(self) -> str:
        """Where the head looks most, besides the path's target."""
        return max(self.others, key=lambda role: self.others[role])


@dataclass(frozen=True)
class HeadConsistency:
    """One head with paths, intact among replaced heads.

    Attributes:
        head: the head.
        loss: the loss with this head intact and all other heads of the circuit replaced.
        threshold: a loss below it counts as low.
        attention: the head's own attention along each path, label by label.
        by_label: the loss for each label at the role with the highest; None if the task does not split its losses.
        restored_by: for a head that is not self-consistent, the lower heads, each of which makes it self-consistent if
            it is intact as well, with the loss.
    """

    head: Head
    loss: Loss
    threshold: float
    attention: tuple[OwnAttention, ...]
    by_label: ByLabel | None = None
    restored_by: Mapping[Head, Loss] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Whether the head is self-consistent."""
        return _together([low(self.loss, self.by_label, self.threshold), *(own.decision for own in self.attention)])

    def lowest(self, path: AttentionPath) -> OwnAttention:
        """Return the label with the lowest attention along a path."""
        return min((own for own in self.attention if own.path == path), key=lambda own: own.attention.mean)

    def sentence(self, group: str | None) -> str:
        """Return what the head does by itself, in words."""
        begin = {"holds": "is self-consistent", "fails": "is not self-consistent", "undecided": "is undecided"}
        split = _split(self.by_label, self.threshold)
        loss = f"with it intact the loss is {self.loss}{split} (threshold {self.threshold:.3g})"
        said = [
            f"{own.path.source} pays {own.attention.mean:.2f} to {own.path.target}{_on(group, own.label)}, and "
            f"{own.others[own.instead]:.2f} to {own.instead}"
            for own in self.attention
            if own.decision != "holds"
        ]
        looks = f"; by itself {'; '.join(said)}" if said else ""
        missing = "" if self.head.layer == 0 else _missing(self.decision, self.restored_by, str(self.head))
        return f"{self.head} {begin[self.decision]}: {loss}{looks}.{missing}"


@dataclass(frozen=True)
class SelfConsistency:
    """The heads with paths of a circuit, each by itself and all at once.

    Attributes:
        heads: every head with paths, from the lowest layer up.
        unablated: the loss of the unablated model.
        combined: the loss with all heads of the circuit replaced.
        intact: the loss with all heads with paths intact, and all other heads of the circuit replaced.
        threshold: a loss below it counts as low.
        group: the task's main group, by whose labels attention and losses are split.
        by_label: ``intact`` for each label at the role with the highest; None if the task does not split its losses.
        unnamed: the number of heads below the highest head with paths that the circuit does not name, and that stay
            intact. With any, nothing is shown to hold.
        restored_by: if this loss is not low, the other heads below the highest head with paths, each of which makes it
            low if it is intact as well, with the loss.
    """

    heads: tuple[HeadConsistency, ...]
    unablated: Loss
    combined: Loss
    intact: Loss
    threshold: float
    group: str | None
    by_label: ByLabel | None = None
    unnamed: int = 0
    restored_by: Mapping[Head, Loss] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Whether the circuit is self-consistent."""
        open_: list[Decision] = ["undecided"] if self.unnamed else []
        return _together([*open_, self.together, *(head.decision for head in self.heads)])

    @property
    def together(self) -> Decision:
        """Whether the loss is low with all heads with paths intact at once."""
        return low(self.intact, self.by_label, self.threshold)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for the circuit, and one for every head with paths."""
        begin = {"holds": "is self-consistent", "fails": "is not self-consistent", "undecided": "is undecided"}
        heads = f"all {len(self.heads)} heads with paths" if len(self.heads) > 1 else "its only head with paths"
        split = _split(self.by_label, self.threshold)
        missing = _missing(self.together, self.restored_by, "the heads with paths")
        if self.unnamed:
            these = "1 lower head stays" if self.unnamed == 1 else f"{self.unnamed} lower heads stay"
            missing = (
                f" {these} intact, because the circuit does not name them; they may tell it where to look.{missing}"
            )
        loss = (
            f"with {heads} intact the loss is {self.intact}{split}; with all its heads replaced it is {self.combined}"
        )
        return (
            f"The circuit {begin[self.decision]}: {loss}.{missing}",
            *(head.sentence(self.group) for head in self.heads),
        )

    def table(self) -> pandas.DataFrame:
        """Return one row for every path and label: the head's own attention, and the loss with the head intact.

        The last row has the loss with all heads with paths intact.
        """
        together = {"head": "all", "head_decision": self.decision, **_losses(self.intact, self.by_label)}
        heads = (
            {
                "head": str(one.head),
                "head_decision": one.decision,
                **_losses(one.loss, one.by_label),
                "path": str(own.path),
                "label": own.label,
                "attention": own.attention.mean,
                "attention_se": own.attention.standard_error,
                "examples": own.attention.n_examples,
                "decision": own.decision,
                "instead": own.instead,
                "attention_instead": own.others[own.instead],
            }
            for one in self.heads
            for own in one.attention
        )
        return pandas.DataFrame([*heads, together]).astype({"label": "Int64", "examples": "Int64"})

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "decision": self.decision,
            "threshold": self.threshold,
            "unablated": self.unablated.to_json(),
            "combined": self.combined.to_json(),
            "content_intact": self.intact.to_json(),
            "by_label": self.by_label and self.by_label.to_json("losses"),
            "restored_by": {str(head): loss.to_json() for head, loss in self.restored_by.items()},
            "unnamed": self.unnamed,
            "group": self.group,
            "heads": {
                str(one.head): {
                    "decision": one.decision,
                    "loss": one.loss.to_json(),
                    "by_label": one.by_label and one.by_label.to_json("losses"),
                    "restored_by": {str(head): loss.to_json() for head, loss in one.restored_by.items()},
                    "attention": [
                        {
                            "path": str(own.path),
                            "label": own.label,
                            **own.attention.to_json(),
                            "decision": own.decision,
                            "others": dict(own.others),
                        }
                        for own in one.attention
                    ],
                }
                for one in self.heads
            },
            "sentences": [*self.sentences()],
        }


def low(loss: Loss, by_label: ByLabel | None, threshold: float) -> Decision:
    """Return whether a loss is below the threshold, on average and, if it is split, for every label."""
    means: list[Loss | Mean] = [loss, *(by_label.means.values() if by_label else ())]
    return _together(_decided(one.mean < threshold, one.near(threshold)) for one in means)


def _losses(loss: Loss, by_label: ByLabel | None) -> dict[str, Any]:
    """Return a loss, and the highest loss of a label, as columns of the table."""
    found = {"loss": loss.mean, "loss_se": loss.standard_error}
    if by_label is None:
        return found
    label, mean = max(by_label.means.items(), key=lambda own: own[1].mean)
    highest = {"highest": mean.mean, "highest_se": mean.standard_error}
    return found | highest | {"highest_at": f"{by_label.group} {label} of {by_label.role}"}


def _split(by_label: ByLabel | None, threshold: float) -> str:
    """Return the labels whose loss is not clearly below the threshold, in words."""
    if by_label is None:
        return ""
    high = {own: mean for own, mean in by_label.means.items() if mean.mean >= threshold or mean.near(threshold)}
    each = (f"{mean.mean:.3f} ± {mean.standard_error:.3f} on {by_label.group} {own}" for own, mean in high.items())
    return f", and {', '.join(each)} of {by_label.role}" if high else ""


def _missing(decision: Decision, restored_by: Mapping[Head, Loss], to: str) -> str:
    """Return the missing edges in words: from a lower head to what it makes self-consistent if it is intact as well."""
    if decision == "holds":
        return ""
    if not restored_by:
        return f" No single lower head, intact as well, makes {to} self-consistent."
    lower = ", or ".join(
        f"from {head} (with it intact as well the loss is {loss})" for head, loss in restored_by.items()
    )
    return f" An edge to {to} {'is' if decision == 'fails' else 'may be'} missing: {lower}."


def _decided(right: bool, near: bool) -> Decision:
    return "undecided" if near else "holds" if right else "fails"


def _together(decisions: Iterable[Decision]) -> Decision:
    """Return ``fails`` if one fails, else ``undecided`` if one is undecided."""
    found = {*decisions}
    return "fails" if "fails" in found else "undecided" if "undecided" in found else "holds"


def _on(group: str | None, label: int | None) -> str:
    return "" if label is None else f" on {group} {label}"
