"""The one error that a person can mend by giving other input."""


class BadInput(ValueError):
    """Input that cannot be used; the message, one line, names the offending thing and what was expected.

    The command line prints the message and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        """Libraries' own messages, which become part of it, often have several lines."""
        super().__init__(" ".join(message.split()))


class Unsolved(BadInput):
    """A model does not solve its task, so that it has no circuit for it."""


def check_size(what: str, value: object, least: int, most: int) -> None:
    """Refuse a number that is no whole one, or out of range; ``what`` names it.

    Raises:
        BadInput: it is.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{what} is {value!r}; expected {least} to {most}")
