"""What this process uses and may use. Windows cannot tell: tests that ask are left out there."""

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")
MIB = 2**20


@contextmanager
def files_of_at_most(size: int):
    """As on a disk that is nearly full."""
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def peak() -> int:
    """Return the peak memory in bytes since ``reset``, or, but on Linux, since the start of the process."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def reset() -> int:
    """Reset the peak, and return the bytes in use."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    return peak()
