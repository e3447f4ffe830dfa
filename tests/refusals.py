"""What is refused: one line that names what is wrong."""

from collections.abc import Callable

import pytest

from circuits import BadInput


def assert_refused(said: str, work: Callable[..., object], /, *arguments: object, **settings: object) -> str:
    """The work is refused in one line that matches, which is returned."""
    with pytest.raises(BadInput, match=said) as refused:
        work(*arguments, **settings)
    line = str(refused.value)
    assert "\n" not in line
    return line
