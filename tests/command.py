"""The command line, run in this process."""

import pytest

from retrieval_interp.cli import main


def exit_code(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = exit_code(*arguments)
    out, errors = capsys.readouterr()
    return code, out, errors


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which a command is refused."""
    code, out, errors = run(capsys, *arguments)
    assert (code, out, errors.count("\n")) == (2, "", 1), errors
    assert errors.startswith("retrieval-interp: ")
    return errors
