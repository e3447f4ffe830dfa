"""All cores of a processor, one piece of work on each.

PyTorch shares out every single operation instead. The operations here are many and small, so that its threads would
wait for each other more than they work.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


_shared_out: list[int] = []  # how many pieces run at once, while some do


def pieces_at_once(device: torch.device) -> int:
    """How many pieces run at once: one on a GPU, else as many as PyTorch has threads, or had before they began."""
    return 1 if device.type != "cpu" else _shared_out[0] if _shared_out else torch.get_num_threads()


def on_all_cores(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    done: Callable[[Item, Result], None],
    device: torch.device,
) -> None:
    """Do ``work`` for every item, and tell ``done`` of each in their order, in the thread that calls.

    Autocast holds in all of them; other modes of PyTorch (such as its counters of operations) in that thread only.
    Other threads of a program that first use PyTorch meanwhile have one of its threads, too.

    Args:
        work: called from several threads at once; PyTorch has one thread in each.
        items: taken as the work goes on.
        done: is told an item and what became of it.
        device: that the work runs on.
    """
    n_threads = torch.get_num_threads() if device.type == "cpu" else 1
    if n_threads == 1:
        for item in items:
            done(item, work(item))
        return
    pool = ThreadPoolExecutor(n_threads)
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    precision = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    def alone(item: Item) -> Result:
        with torch.autocast("cpu", precision, enabled=precision is not None):  # as in the thread that calls
            return work(item)

    def told(most_waiting: int) -> None:
        while len(waiting) > most_waiting:
            item, future = waiting[0]
            done(item, future.result())
            waiting.popleft()

    try:
        _shared_out.append(n_threads)
        torch.set_num_threads(1)  # what a new thread begins with, too
        for item in items:
            waiting.append((item, pool.submit(alone, item)))
            told(most_waiting=n_threads)
        told(most_waiting=0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        interrupted = _ended([future for _, future in waiting if not future.cancelled()])
        _shared_out.clear()
        torch.set_num_threads(n_threads)
        if interrupted:
            raise KeyboardInterrupt


def _ended(under_way: Iterable[Future[Result]]) -> bool:
    """Wait for what is under way, which PyTorch cannot be left in; returns whether Ctrl-C came meanwhile.

    For the work and not for the threads: Python takes a thread that it was interrupted in waiting for to have ended.
    """
    interrupted = False
    while True:
        try:
            wait(under_way)
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
