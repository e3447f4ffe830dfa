"""The excess of circuits split by label, from the losses of every instance.

A task may give the losses of every instance (``WithInstances``). If an example has a single instance, its losses are
those of the example.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float

from circuits.ablation import evaluate
from circuits.circuit import Circuit
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.losses.loss import Compared, any_above
from circuits.losses.sequential_test import SequentialTest
from circuits.task import Examples, Task, WithInstances


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
    """Return whether the mean is below the threshold for every label at every role; if two-sided, also its negative."""
    each = [one for one in values.flatten(1).T if not one.isnan().all()]
    each += [-one for one in each if test.two_sided]
    return any_above(test.decide(one, test.threshold, above_of=len(each)) for one in each)


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
