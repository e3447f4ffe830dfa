"""The one error that a person can mend by giving other input."""


class BadInput(ValueError):
    """Input that cannot be used; the message names the offending thing and what was expected.

    The command line prints the message as one line and exits with code 2.
    """
