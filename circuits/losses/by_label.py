"""Means and losses split by the labels of the main group, such as the slot: an average can hide a few that fail.

A task may give the losses of every instance (``WithInstances``). If an example has a single instance, its losses are
those of the example.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Bool, Float

from circuits.circuit import Circuit
from circuits.losses.loss import Compared, Mean
from circuits.roles import Roles
from circuits.task import Examples, Task, WithInstances
from circuits.utils.lazy import torch

if TYPE_CHECKING:
    from circuits.losses.sequential_test import SequentialTest

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


def excess_by_label(
    test: SequentialTest, circuits: Sequence[Circuit], named: Collection[str] = ()
) -> list[tuple[ByLabel | None, Compared]]:
    """Return the excess of each circuit for every label, at the role whose highest is the highest, and a decision.

    It is below if it is for every label at every role, on the first examples of a test. If the task has no main group,
    or only gives losses averaged over several instances, there is nothing to split, and nothing above.

    Args:
        test: the test, with its threshold.
        circuits: the circuits.
        named: roles that come first where several have the same labels.
    """
    from circuits.ablation import evaluate

    model, task, examples = test.model, test.task, test.first
    roles, n_instances = examples.roles, examples.roles.positions.shape[2]
    if not has_few_labels(roles) or (n_instances > 1 and not isinstance(task, WithInstances)):
        return [(None, "below")] * len(circuits)
    measured = evaluate(
        model, _EachInstance(task, n_instances), examples, [Circuit(), *circuits], averages=test.averages
    )
    losses, asked = measured.unflatten(-1, (2, n_instances, -1)).double().mean(dim=-1).unbind(dim=2)
    excess = ((losses - losses[0]) / test.scale.width).clamp(-1, 1)
    splits = [over_labels(one, there > 0, roles) for one, there in zip(excess[1:], asked[1:], strict=True)]
    return [(ByLabel.of(split, roles, named, worst=True), _everywhere(test, split)) for split in splits]


def _everywhere(test: SequentialTest, values: Float[torch.Tensor, "example role label"]) -> Compared:
    """Return whether the mean is below the threshold for every label at every role."""
    each = [one for one in values.flatten(1).T if not one.isnan().all()]
    sides = {test.decide(one, test.threshold, above_of=len(each)) for one in each}
    return "above" if "above" in sides else "undecided" if "undecided" in sides else "below"


class _EachInstance:
    """A task whose loss components are those of every instance, and then whether the instance is asked (1 or 0)."""

    def __init__(self, task: Task, n_instances: int) -> None:
        self.task, self.roles, self.output_roles, self.examples = task, task.roles, task.output_roles, task.examples
        self.loss_components = tuple(map(str, range(2 * n_instances * len(task.loss_components))))

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        task = self.task
        losses = task.instance_losses if isinstance(task, WithInstances) else task.losses
        each = losses(outputs, examples).flatten(1)
        return torch.cat([each.nan_to_num(), (~each.isnan()).to(each.dtype)], dim=1)
