"""Losses split by the labels of the main group, such as the slot: an average over instances can hide a few that fail.

A task may give the losses of every instance (``WithInstances``). If an example has a single instance, its losses are
those of the example.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

from jaxtyping import Float

from circuits.circuit import Circuit
from circuits.losses.by_label import ByLabel, has_few_labels, over_labels
from circuits.model.transformer import Transformer
from circuits.task import Examples, Task, WithInstances
from circuits.utils.lazy import torch


def losses_by_label(
    model: Transformer, task: Task, examples: Examples, circuits: Sequence[Circuit], named: Collection[str] = ()
) -> list[ByLabel | None]:
    """Return the loss under each circuit's ablation for every label, at the role whose highest loss is the highest.

    It is None if the task has no main group, or only gives losses averaged over several instances.

    Args:
        model: the model.
        task: its task.
        examples: the examples to run.
        circuits: the ablations; ``Circuit()`` is the unablated model.
        named: roles that come first where several have the same labels.
    """
    from circuits.ablation.evaluation import evaluate

    roles, n_instances = examples.roles, examples.roles.positions.shape[2]
    if not has_few_labels(roles) or (n_instances > 1 and not isinstance(task, WithInstances)):
        return [None] * len(circuits)
    found = evaluate(model, _EachInstance(task, n_instances), examples, circuits)
    losses, asked = found.unflatten(-1, (2, n_instances, -1)).double().mean(dim=-1).unbind(dim=2)
    return [
        ByLabel.of(over_labels(own, there > 0, roles), roles, named, worst=True)
        for own, there in zip(losses, asked, strict=True)
    ]


@dataclass(frozen=True)
class _EachInstance:
    """A task whose loss components are those of every instance, and then whether the instance is asked (1 or 0)."""

    task: Task
    n_instances: int

    @property
    def roles(self) -> tuple[str, ...]:
        return self.task.roles

    @property
    def output_roles(self) -> tuple[str, ...]:
        return self.task.output_roles

    @property
    def loss_components(self) -> tuple[str, ...]:
        parts = product(("loss", "asked"), range(self.n_instances), self.task.loss_components)
        return tuple(f"{which} {instance} {name}" for which, instance, name in parts)

    def examples(self, n: int, seed: int) -> Examples:
        return self.task.examples(n, seed)

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        if isinstance(self.task, WithInstances):
            found = self.task.instance_losses(outputs, examples).flatten(1)
        else:
            found = self.task.losses(outputs, examples)
        return torch.cat([found.nan_to_num(), (~found.isnan()).to(found.dtype)], dim=1)
