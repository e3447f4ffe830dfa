"""Run pieces of work on all cores, one piece on each.

By default PyTorch splits every single operation over its threads. The operations here are many and small, so these
threads would mostly wait for each other.
"""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


_shared_out: list[int] = []  # the number of pieces that run at once; empty while none runs


def pieces_at_once(device: torch.device) -> int:
    """Return the number of pieces that run at once: one on a GPU, on a CPU the number of PyTorch's threads.

    While pieces run, it is the number of threads that PyTorch had before.
    """
    return 1 if device.type != "cpu" else _shared_out[0] if _shared_out else torch.get_num_threads()


def on_all_cores(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    done: Callable[[Item, Result], None],
    device: torch.device,
) -> None:
    """Do ``work`` for every item, and call ``done`` for each in order, in the calling thread.

    Autocast of the calling thread applies to all threads. Other modes of PyTorch (such as counters of operations) apply
    to the calling thread only. If another thread of the program first uses PyTorch meanwhile, it gets one PyTorch
    thread, too.

    Args:
        work: the function to run; several threads call it at once, each with one PyTorch thread.
        items: the items; they are read while the work goes on.
        done: is called with each item and its result.
        device: the device that the work runs on.
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
        with torch.autocast("cpu", precision, enabled=precision is not None):  # as in the calling thread
            return work(item)

    def told(most_waiting: int) -> None:
        while len(waiting) > most_waiting:
            item, future = waiting[0]
            done(item, future.result())
            waiting.popleft()

    try:
        _shared_out.append(n_threads)
        torch.set_num_threads(1)  # also the default of new threads
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
    """Wait for running work, which must not be left inside PyTorch; return whether Ctrl-C was pressed meanwhile.

    It waits for the futures, not for the threads: after an interrupted wait, Python assumes that a thread has ended.
    """
    interrupted = False
    while True:
        try:
            wait(under_way)
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
