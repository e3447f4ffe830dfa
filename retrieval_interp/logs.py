"""Logs: files to which one line after the other is added."""

import os
from errno import ENOSPC
from pathlib import Path

from circuits.errors import BadInput


def append_line(path: Path, line: str) -> None:
    """Add a line to a log; create the log and its folder if they do not exist.

    An unfinished last line, from a killed writer or a full disk, is removed first.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            if end and file.read(1) != b"\n":
                file.seek(0)
                end = file.truncate((file.read(end) or b"").rfind(b"\n") + 1)
            content = (line + "\n").encode()
            if file.write(content) < len(content):  # the disk is full
                file.truncate(end)
                raise OSError(ENOSPC, os.strerror(ENOSPC))
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
