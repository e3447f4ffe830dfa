"""The peak memory of this process: since ``reset`` on Linux, since the start of the process elsewhere."""

import resource
import sys
from pathlib import Path

MIB = 2**20


def peak() -> int:
    """Return the peak memory in bytes since ``reset``."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def reset() -> int:
    """Reset the peak, and return the bytes in use."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")
    return peak()
