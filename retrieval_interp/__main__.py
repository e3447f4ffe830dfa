"""The command line. Ctrl-C prints one line, even while modules are still being imported."""

import sys
import warnings


def main() -> None:
    """Run ``retrieval-interp`` or ``python -m retrieval_interp``."""
    warnings.formatwarning = lambda message, *_: f"warning: {' '.join(str(message).split())}\n"
    try:
        from retrieval_interp.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
