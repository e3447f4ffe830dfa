"""The command line, from its first moment on: also while it is still imported Ctrl-C is one line."""

import sys


def main() -> None:
    """What ``retrieval-interp`` and ``python -m retrieval_interp`` run."""
    try:
        from retrieval_interp.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
