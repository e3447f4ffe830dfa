"""Names of roles and groups: any printable text, but no word that means something else in a circuit."""

from circuits.errors import BadInput

WORDS = ("*", "at", "elsewhere", "identity", "mechanism", "position", "previous", "to", "uniform", "zero")


def check_name(what: str, name: object) -> None:
    """Check the name of a role or a group.

    Args:
        what: ``role`` or ``group``, for the message.
        name: the name.

    Raises:
        BadInput: it is a word of the circuit language (``WORDS``), begins with ``position``, or is not printable text.
    """
    if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
        raise BadInput(f"a {what} is called {name!r:.60}; expected printable text")
    if name in WORDS or name.startswith("position "):
        raise BadInput(f"a {what} is called {name!r}, which means something else in a circuit; expected another name")
