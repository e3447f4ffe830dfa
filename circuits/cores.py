"""All cores of a processor, one piece of work on each.

PyTorch shares out every single operation instead. The operations here are many and small, so that its threads would
wait for each other more than they work.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores(device: torch.device) -> int:
    """How many pieces run at once: one on a GPU, else as many as PyTorch has threads."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def on_all_cores(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    done: Callable[[Item, Result], None],
    device: torch.device,
) -> None:
    """Do ``work`` for every item, and tell ``done`` of each in their order, in the thread that calls.

    Args:
        work: called from several threads at once; PyTorch has one thread in each.
        items: taken as the work goes on.
        done: is told an item and what became of it.
        device: that the work runs on.
    """
    n_threads = cores(device)
    if n_threads == 1:
        for item in items:
            done(item, work(item))
        return
    torch.set_num_threads(1)  # what a new thread begins with, too
    pool = ThreadPoolExecutor(n_threads)
    waiting: deque[tuple[Item, Future[Result]]] = deque()

    def told(most_waiting: int) -> None:
        while len(waiting) > most_waiting:
            item, future = waiting.popleft()
            done(item, future.result())

    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            told(most_waiting=n_threads)
        told(most_waiting=0)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(n_threads)
