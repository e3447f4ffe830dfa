"""Watching code that gets many unusual inputs: it may not raise, hang or use too much memory."""

import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.robustness.memory import MIB, peak, reset

PATIENCE = 10  # most seconds for one input
MEMORY = 1024  # most MiB for one input


class TooLong(BaseException):
    """An input took too long. It is not an Exception, so that the code under test does not catch it."""


def alarmed(number: int, _: object) -> None:
    """Raise TooLong; this is the handler of SIGALRM."""
    raise TooLong("took too long")


class Watched:
    """The results of all inputs together.

    Attributes:
        slowest: the most seconds that an input took.
        most: the most MiB that an input took.
        faults: the first input that caused each fault, by kind and place of the fault.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._held: int | None = None  # bytes, before the first input
        self.slowest = self.most = 0.0
        self.faults: dict[str, Any] = {}

    @contextmanager
    def watching(self, given: Any) -> Iterator[None]:
        """Record the time, the memory and the faults of one input; the block must catch all expected exceptions."""
        held, started = reset(), time.perf_counter()
        if self._held is None:
            self._held = held
        signal.alarm(self._patience)
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.fault(f"{type(error).__name__} at {Path(place.filename).name}:{place.name}", given)
        finally:
            signal.alarm(0)
        self.slowest = max(self.slowest, time.perf_counter() - started)
        most = peak()
        self.most = max(self.most, (most - held) / MIB)
        if most - min(held, self._held) > MEMORY * MIB:  # for this input, or for all inputs so far
            self.fault(f"more than {MEMORY} MiB", given)

    def fault(self, kind: str, given: Any) -> None:
        """Record a fault."""
        self.faults.setdefault(kind, given)

    def to_json(self) -> dict[str, Any]:
        return {"slowest": round(self.slowest, 3), "most_mib": round(self.most, 1), "faults": self.faults}
