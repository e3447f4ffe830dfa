"""Types of the benchmarks' command-line arguments."""

import argparse


def at_least_one(text: str) -> int:
    """Return a whole number from 1 on.

    Raises:
        ArgumentTypeError: it is something else.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number from 1 on")
    return int(text)
