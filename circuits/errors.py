"""The errors for input that cannot be used."""

from numbers import Integral


class BadInput(ValueError):
    """Input that cannot be used. The message is one line that names the offending thing and what was expected.

    The command line prints the message and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        """Join the lines of the message; messages of libraries often have several."""
        super().__init__(" ".join(message.split()))


class Unsolved(BadInput):
    """The model does not solve its task, so it has no circuit to discover."""


def check_size(what: str, value: object, least: int, most: int) -> None:
    """Check a size; ``what`` names it in the message.

    Raises:
        BadInput: the value is not a whole number, or is out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{what} is {value!r}; expected {least} to {most}")


def check_seed(seed: object) -> None:
    """Check a seed.

    Raises:
        BadInput: it is not a whole number, or is out of range.
    """
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**63:
        raise BadInput(f"seed {seed!r} cannot be used; expected a whole number from 0 to 2^63 - 1")
