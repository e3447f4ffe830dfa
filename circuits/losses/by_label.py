"""Means and losses split by the labels of the main group, such as the slot: an average can hide a few that fail."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float

from circuits.losses.loss import Mean
from circuits.roles import Roles
from circuits.utils.lazy import torch

MOST_LABELS = 16  # of a group by which means are split


@dataclass(frozen=True)
class ByLabel:
    """Means for every label of the main group at one role.

    Attributes:
        group: the main group, such as ``slot``.
        role: the role; of roles with the same labels, one that the circuit names.
        means: the mean with each label; a label that never occurs is left out.
    """

    group: str
    role: str
    means: Mapping[int, Mean]

    @classmethod
    def of(
        cls,
        values: Float[torch.Tensor, "example role label"],
        roles: Roles,
        named: Collection[str] = (),
        *,
        worst: bool = False,
    ) -> ByLabel | None:
        """Choose the role at which the labels differ most, of equal ones first a named one; None without any value.

        Labels differ by chance, too: see the standard errors.

        Args:
            values: the value of every example for each label at each role; NaN without any.
            roles: the roles.
            named: the names of roles that come first.
            worst: whether to choose the role with the highest mean of a label instead.
        """
        splits = []
        for role, at in zip(roles.names, values.transpose(0, 1), strict=True):
            means = {label: mean for label, one in enumerate(at.T) if (mean := Mean.of(one)).n_examples}
            splits += [cls(str(roles.main_group), role, means)] if means else []
        splits.sort(key=lambda split: split.role not in named)
        lowest = {split.role: 0.0 if worst else min(mean.mean for mean in split.means.values()) for split in splits}
        return max(splits, key=lambda split: split.highest - lowest[split.role], default=None)

    @property
    def highest(self) -> float:
        """The mean with the label that has the highest."""
        return max(mean.mean for mean in self.means.values())

    def __str__(self) -> str:
        each = ", ".join(f"{label}: {mean.mean:.2f}" for label, mean in self.means.items())
        return f"by {self.group} of {self.role} {each}"


def has_few_labels(roles: Roles) -> bool:
    """Whether there is a main group by which means can be split."""
    return roles.main_group is not None and int(roles.groups[roles.main_group].max()) < MOST_LABELS


def over_labels(
    values: Float[torch.Tensor, "*variant example instance"],
    there: Bool[torch.Tensor, "example instance"],
    roles: Roles,
) -> Float[torch.Tensor, "*variant example role label"]:
    """Average over the instances that are ``there``, for each label of the main group at each role; NaN without any."""
    group = str(roles.main_group)
    labels = torch.stack([roles.group(group, role) for role in roles.names], dim=-1)  # [example, instance, role]
    of_label = torch.nn.functional.one_hot(labels, MOST_LABELS) * there[..., None, None]
    return torch.einsum("...ei,eirl->...erl", values, of_label.to(values.dtype)) / of_label.sum(dim=1)
