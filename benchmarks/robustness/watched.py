"""Code that is given one odd input after another, and may neither raise, nor hang, nor fill the memory."""

import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.robustness.memory import MIB, peak, reset

PATIENCE = 10  # seconds that one input may take
MEMORY = 1024  # MiB


class TooLong(BaseException):
    """Not done in time; nobody who is prepared for errors takes it for one of theirs."""


def alarmed(number: int, _: object) -> None:
    """What happens to code that takes too long: the handler of SIGALRM."""
    raise TooLong("not done in time")


class Watched:
    """What came of all inputs together.

    Attributes:
        slowest: the most seconds that one took.
        most: the most MiB that one took.
        faults: everything that may not happen, by its kind and place, with the first input that did it.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._held: int | None = None  # bytes, before the first input
        self.slowest = self.most = 0.0
        self.faults: dict[str, Any] = {}

    @contextmanager
    def watching(self, given: Any) -> Iterator[None]:
        """Notes what becomes of one input; what is an answer to it has to be caught inside."""
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
        if most - min(held, self._held) > MEMORY * MIB:  # at once, or little by little
            self.fault(f"more than {MEMORY} MiB", given)

    def fault(self, kind: str, given: Any) -> None:
        """Something that may not happen."""
        self.faults.setdefault(kind, given)

    def to_json(self) -> dict[str, Any]:
        return {"slowest": round(self.slowest, 3), "most_mib": round(self.most, 1), "faults": self.faults}
