"""Run commands on a full and on a read-only disk: they must fail with a clear line and damage nothing.

    mkdir /tmp/small && mount -t tmpfs -o size=64m tmpfs /tmp/small
    python -m benchmarks.robustness.full_disk /tmp/small --json > data/full_disk.json

Every command of ``faults`` that writes files runs in a folder of this file system. First only a share of the space that
the command needs is free, or the file system is read-only. Then the command runs again with enough space. The first run
must exit with 2 and one line, and leave no partial file. After the second run, the files must equal those of an
undisturbed run. Exits with 1 if a command fails this test. Mounting needs a privileged user.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.robustness.faults import KINDS, OUTPUT, PATIENCE, Kind, being_written, ended, in_a_process, prepare
from retrieval_interp.models.provenance import versions

SHARES = (0.02, 0.3, 0.6, 0.9)  # of the space that a command needs


@contextmanager
def full(disk: Path, room: int) -> Iterator[None]:
    """Fill a disk up to ``room`` bytes, until the block ends."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        for _ in range((shutil.disk_usage(disk).free - room) // 4096):
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Make a disk read-only, until the block ends."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def run(kind: Kind, folder: Path, scratch: Path) -> tuple[int | None, list[str]]:
    """Run a command, and return its exit code and its error lines."""
    output = scratch / OUTPUT
    output.write_text("")
    code = ended(in_a_process(lambda: kind.command(folder), scratch / "folder"), PATIENCE)
    return code, [line for line in output.read_text().splitlines() if line.startswith("retrieval-interp: ")]


def size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(kind: Kind, disk: Path, scratch: Path) -> dict[str, Any]:
    """Run work of one kind on full and read-only disks, and return the results."""
    whole = []
    for _ in range(2):
        folder = disk / "work"
        folder.mkdir()
        kind.prepare(folder)
        before = size(folder)
        code, _ = run(kind, folder, scratch)
        whole.append(kind.left(folder))
        needed = size(folder) - before
        shutil.rmtree(folder)
    # Files with measured times differ between the two runs.
    expected = {name: content for name, content in whole[0].items() if whole[1].get(name) == content}
    lines: list[str] = []
    faults: list[str] = []
    for name, state in {**{f"{share:.0%} of the space": share for share in SHARES}, "read-only": None}.items():
        folder = disk / "work"
        folder.mkdir()
        kind.prepare(folder)
        with read_only(disk) if state is None else full(disk, int(state * needed)):
            stopped, errors = run(kind, folder, scratch)
        lines += [f"{name}: {line.replace(str(folder), '')}" for line in errors]
        if stopped != 2 or len(errors) != 1:
            faults.append(f"{name}: ended with {stopped}, {len(errors)} lines")
        if being_written(folder):
            faults.append(f"{name}: left a partial file")
        again, _ = run(kind, folder, scratch)
        if again != code:
            faults.append(f"{name}: ended with {again} with enough space, instead of {code}")
        found = kind.left(folder)
        faults += [f"{name}: {path}" for path in sorted(expected) if found.get(path) != expected[path]]
        faults += [f"{name}: stray {path}" for path in sorted(found.keys() - whole[0].keys())]
        shutil.rmtree(folder)
    return {"needed_bytes": needed, "said": lines, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("disk", type=Path, metavar="FOLDER", help="mount point of a small, empty file system")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    if not arguments.disk.is_mount() or any(arguments.disk.iterdir()):
        parser.error(f"{arguments.disk} is not the mount point of an empty file system")
    prepare()
    found = {}
    for name in arguments.kinds or [name for name in KINDS if name != "benchmark"]:
        print(name, file=sys.stderr)
        with tempfile.TemporaryDirectory() as scratch:
            found[name] = measure(KINDS[name], arguments.disk, Path(scratch))
        if not arguments.json:
            print(name, found[name])
    if arguments.json:
        print(
            json.dumps({"command": "python -m benchmarks.robustness.full_disk", **versions(), "kinds": found}, indent=2)
        )
    sys.exit(1 if any(one["faults"] for one in found.values()) else 0)


if __name__ == "__main__":
    main()
