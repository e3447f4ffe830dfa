"""Types of the benchmarks' command-line arguments."""

import argparse
from collections.abc import Callable

from circuits.errors import BadInput
from retrieval_interp import load


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of a whole number from ``least`` on; it raises ArgumentTypeError for anything else."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number from {least} on")
        return int(text)

    return number


at_least_one = at_least(1)


def loadable(text: str) -> str:
    """Return the name or directory of a model; it raises ArgumentTypeError if that does not load."""
    try:
        load(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
