"""A null model for discovery: the same discovery on the same examples, with role names permuted in each example.

Averages and fixed positions work as well as before. Only paths between roles lose their meaning.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.discovery.discovery import Discovery, discover
from circuits.losses.loss import Loss
from circuits.losses.sample import stream_seed
from circuits.model.transformer import Transformer
from circuits.roles import Roles
from circuits.task import Examples, Task
from circuits.utils.progress import Progress


@dataclass(frozen=True)
class PermutedRoles:
    """A task whose role names, and their instances, are permuted within each example.

    The output roles, and the roles that all instances share, keep their positions. All other roles are permuted among
    roles with overlapping ranges of positions, so that every path that the mask allows stays allowed. If no ranges
    overlap and there is only one instance, all of them are permuted together.
    """

    task: Task

    @property
    def roles(self) -> tuple[str, ...]:
        """The same as in the task."""
        return self.task.roles

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The same as in the task."""
        return self.task.loss_components

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The same as in the task."""
        return self.task.output_roles

    def examples(self, n: int, seed: int) -> Examples:
        """Return the examples of the task, with permuted role names."""
        examples = self.task.examples(n, seed)
        roles = examples.roles
        return replace(
            examples, roles=permuted(roles, (*self.output_roles, *roles.shared), stream_seed(seed, "permuted"))
        )

    def losses(self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples) -> Float[Tensor, "batch component"]:
        """Return the losses of the task."""
        return self.task.losses(outputs, examples)


def permuted(roles: Roles, fixed: tuple[str, ...], seed: int) -> Roles:
    """Permute role names, and instances, within each example.

    Args:
        roles: the roles.
        fixed: the roles that keep their positions.
        seed: the seed of the permutations.
    """
    generator = torch.Generator().manual_seed(seed)
    n_instances = roles.positions.shape[2]
    order = torch.arange(roles.positions[0].numel()).repeat(len(roles), 1)  # of each example's positions
    for group in _groups(roles, fixed):
        places = torch.tensor(
            [[role * n_instances + instance for instance in range(n_instances)] for role in group]
        ).flatten()
        shuffled = torch.rand(len(roles), len(places), generator=generator).argsort(dim=1)
        order[:, places] = places[shuffled]

    def in_order(own: Tensor) -> Tensor:
        return own.flatten(1).gather(1, order.to(own.device)).view_as(own)

    groups = {name: in_order(own) for name, own in roles.groups.items()}
    return replace(roles, positions=in_order(roles.positions), groups=groups)


def _groups(roles: Roles, fixed: tuple[str, ...]) -> list[list[int]]:
    """Return the groups of role indices that are permuted together (see ``PermutedRoles``)."""
    free = [index for index, name in enumerate(roles.names) if name not in fixed]
    first, last = roles.positions.amin(dim=(0, 2)).tolist(), roles.positions.amax(dim=(0, 2)).tolist()
    groups: list[list[int]] = []
    end = -1
    for index in sorted(free, key=lambda index: first[index]):
        if groups and first[index] < end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = max(end, last[index])
    apart = all(len(group) == 1 for group in groups) and roles.positions.shape[2] == 1
    return [free] if apart else groups


def null_loss(
    model: Transformer,
    task: Task,
    found: Discovery,
    *,
    n_examples: int = 1024,
    progress: Progress | None = None,
) -> Loss:
    """Return the combined loss that the same discovery reaches with permuted role names, on independent examples.

    Args:
        model: the model whose circuit was discovered.
        task: the model's task.
        found: the discovery; its seed and threshold are used.
        n_examples: the number of examples that ``discover`` was given.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.
    """
    null = PermutedRoles(task)
    threshold, seed = found.threshold, found.seed
    return discover(model, null, n_examples=n_examples, threshold=threshold, seed=seed, progress=progress).combined
