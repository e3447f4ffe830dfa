"""Locks between processes: what one process has claimed, no other one does. A lock ends with its process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from circuits.errors import BadInput

LOCKS = ".locks"  # the folder of the locks, in the folder of what is shared


@contextmanager
def claimed(lock: Path, wait: bool = False) -> Iterator[bool]:
    """Claim a piece of work until the block ends.

    Args:
        lock: the file that stands for it; it is created if it does not exist.
        wait: whether to wait until no other process has claimed it.

    Yields:
        whether no other process has claimed it.

    Raises:
        BadInput: the file cannot be written.
    """
    file = FileLock(lock, timeout=-1 if wait else 0)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise BadInput(f"{lock}: cannot be written ({error.strerror or error})") from error
    try:
        yield True
    finally:
        file.release()
