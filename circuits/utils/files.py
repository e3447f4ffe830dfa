"""Write files atomically, and read files with clear errors."""

import glob
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from circuits.errors import BadInput

PARTIAL = ".partial"  # the suffix of files that are being written
ABANDONED = 3600  # seconds after which such a file is that of a killed writer


def to_path(said: Path | str) -> Path:
    """Return the path that a user gave; ``~`` is the home folder, as in a shell; BadInput if it is no path."""
    if not isinstance(said, str | Path):
        raise BadInput(f"a path is of type {type(said).__name__}; expected a text or a Path")
    path = Path(os.path.expanduser(said))
    if len(path.parts) > 1 and path.parts[0].startswith("~") and path.parts[0] != "~":
        raise BadInput(f"{said}: there is no user {path.parts[0][1:]}; expected a path")
    return path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write ``content`` to ``path`` so that a reader sees either the old file or the whole new file.

    Raises:
        BadInput: the folder or the file cannot be written.
    """
    write_together({path: content})


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write several files: first all of them under temporary names, then rename each.

    Temporary files that a killed writer of the same files left an hour ago are removed.

    Raises:
        BadInput: one of the files cannot be written; then none is written.
    """
    for path in contents:
        check_writable(path)
    with ExitStack() as stack:
        try:
            partial: dict[Path, IO[bytes]] = {}
            for path, content in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                partial[path] = file = stack.enter_context(_partial(path))
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            for path, file in partial.items():
                file.close()  # Windows cannot move an open file
                Path(file.name).replace(path)
        except OSError as error:
            raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error


@contextmanager
def _partial(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file beside ``path``; it is removed at the end, unless it was renamed."""
    for abandoned in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > ABANDONED:
                abandoned.unlink()
    options = {"dir": path.parent, "prefix": f".{path.name}.", "suffix": PARTIAL, "delete": False}
    file = tempfile.NamedTemporaryFile(**options)  # type: ignore[call-overload] # noqa: SIM115
    try:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)
        yield file
    finally:
        with suppress(OSError):  # on a full disk, closing fails again
            file.close()
        Path(file.name).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Check before long work that a file can be written; nothing is created or changed.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        if path.is_dir():
            raise BadInput(f"{path}: is a folder; expected a file")
        with tempfile.TemporaryFile(dir=next(filter(Path.exists, path.parents), path.parent)):
            pass
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error


LARGEST_TEXT = 64 * 2**20  # bytes; the largest texts are the logs of long runs


def read_text(path: Path, what: str, largest: int = LARGEST_TEXT) -> str:
    """Read the text of a file; ``what`` names it in errors ("a circuit", "a config").

    Raises:
        BadInput: as ``read_bytes``, or it is not UTF-8.
    """
    try:
        return read_bytes(path, what, largest).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a text file (expected {what})") from error


def read_bytes(path: Path, what: str, largest: int) -> bytes:
    """Read the bytes of a file; ``what`` names it in errors.

    Raises:
        BadInput: the path is missing, not a file, unreadable, empty, or has more than ``largest`` bytes.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is not a file (expected {what})")
        if path.stat().st_size > largest:
            raise BadInput(f"{path}: too large to be {what} (more than {largest} bytes)")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file (expected {what})") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error
    if not content.strip():
        raise BadInput(f"{path}: the file is empty (expected {what})")
    return content
