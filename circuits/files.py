"""Files that are there whole or not at all, and text that is read with clear errors."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from circuits.errors import BadInput


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that a reader sees the old file or the new one, never a part.

    Raises:
        BadInput: the folder or the file cannot be written.
    """

    def write(partial: Path) -> None:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)

    replace_atomically(path, write)


def replace_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, sync it to disk and move it into place.

    Raises:
        BadInput: the folder or the file cannot be written.
    """
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        partial = Path(name)
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o666 & ~umask)
        partial.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def append_line(path: Path, line: str) -> None:
    """Add a line to a log; the log and its folder are made where they are not there.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error


def write_together(contents: Mapping[Path, str]) -> None:
    """Write several files: all of them beside their places first, and only then each into its place.

    Raises:
        BadInput: one of them cannot be written; then none is.
    """
    for path in contents:
        check_writable(path)
    partial: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            beside = path.with_name(f".{path.name}.partial")
            write_atomically(beside, content)
            partial[path] = beside
        for path, beside in partial.items():
            beside.replace(path)
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be written ({error.strerror or error})") from error
    finally:
        for beside in partial.values():
            beside.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """See that a file can be written there, before long work is done for nothing; makes and changes nothing.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        if path.is_dir():
            raise BadInput(f"{path}: is a folder; expected a place for a file")
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error


LARGEST_TEXT = 64 * 2**20  # bytes; the log of a long run is the largest text there is


def read_text(path: Path, what: str, largest: int = LARGEST_TEXT) -> str:
    """The text of a file; ``what`` names it in errors ("a circuit", "a config").

    Raises:
        BadInput: the file is missing, no file, unreadable, empty, not UTF-8, or has more than ``largest`` bytes.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is no file (expected {what})")
        if path.stat().st_size > largest:
            raise BadInput(f"{path}: too large to be {what} (more than {largest} bytes)")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file (expected {what})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a text file (expected {what})") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    if not text.strip():
        raise BadInput(f"{path}: the file is empty (expected {what})")
    return text
