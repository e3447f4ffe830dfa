"""A fixed data set, split: what is averaged, searched with and tested on never shares an example.

A task that draws fresh examples has an independent stream of them for every purpose. A task with a fixed data set
(``OnData``, task.py) has a part of it for each.
"""

from __future__ import annotations

from dataclasses import replace

from circuits.errors import BadInput
from circuits.task import Examples, OnData, Task
from circuits.utils.lazy import torch

SHARES = {  # of the examples, by stream; discovery has the first six, validation the last two
    "means": 1,
    "attention": 1,
    "range": 1,
    "content": 1,
    "discovery": 4,
    "discovered": 4,
    "validation means": 1,
    "validation": 4,
}


class Part:
    """One part of a task's data set, from which examples are drawn."""

    def __init__(self, task: OnData, stream: str) -> None:
        self.task, self.stream = task, stream
        self.roles, self.loss_components, self.output_roles = task.roles, task.loss_components, task.output_roles
        self.losses = task.losses

    def __len__(self) -> int:
        return sizes(self.task)[self.stream]

    def examples(self, n: int, seed: int) -> Examples:
        """Return examples of the part, in an order that depends on the seed.

        Where the data set has neither counterfactual inputs nor padding, they are those of the example before.

        Raises:
            BadInput: the part has fewer.
        """
        whole, own = len(self.task.data), sizes(self.task)
        if n > len(self):
            said = f"the data set has {whole} examples, of which {len(self)} are for {self.stream}"
            raise BadInput(f"{said}; {n} were asked for, expected at most {len(self)}")
        order = torch.randperm(whole, generator=torch.Generator().manual_seed(0))  # the split, always the same
        first = sum(own[name] for name in [*SHARES][: [*SHARES].index(self.stream)])
        mine = order[first : first + len(self)]
        drawn = self.task.data.take(mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(seed))[:n]])
        if n == 1 or drawn.counterfactual is not None or drawn.roles.valid is not None:
            return drawn
        return replace(drawn, counterfactual=drawn.inputs.roll(1, 0))


def part(task: Task, stream: str) -> Task:
    """Return what gives the examples of a stream: a part of the task's data set if it has one, else the task."""
    return Part(task, stream) if isinstance(task, OnData) else task


def sizes(task: Task) -> dict[str, int]:
    """Return the number of examples in every part of the task's data set; empty if its examples are fresh."""
    if not isinstance(task, OnData):
        return {}
    return {stream: len(task.data) * share // sum(SHARES.values()) for stream, share in SHARES.items()}


def at_most(task: Task, n: int, stream: str | None = None) -> int:
    """Return ``n``, or the number of examples in a part of the task's data set (by default in all) if it is smaller."""
    if not isinstance(task, OnData):
        return n
    return min(n, len(task.data) if stream is None else sizes(task)[stream])
