"""The command line. Ctrl-C prints one line, even while modules are still being imported."""

import os
import sys
import warnings


def main() -> None:
    """Run ``retrieval-interp`` or ``python -m retrieval_interp``."""
    wait_passively()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed
        stream.reconfigure(encoding="utf-8")  # in a pipe of Windows it has no ✓
    warnings.formatwarning = lambda message, *_: f"warning: {' '.join(str(message).split())}\n"
    try:
        from retrieval_interp.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def wait_passively() -> None:
    """Make PyTorch's waiting threads release the processor soon; PyTorch must not be imported yet.

    By default they spin, and two processes on two cores take ten times as long; with too few turns one alone is slow.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # turns of spinning


if __name__ == "__main__":
    main()
