"""Give every reader thousands of damaged files; a reader may only raise BadInput with a message of one line.

    python -m benchmarks.robustness.fuzz --json > data/fuzz.json

Half of the files are valid files that hypothesis changes in some places. The other half come from atheris, which
changes files so that new lines of code are reached. atheris comes with the extra ``fuzz``. Without it, all files come
from hypothesis, and the result shows null for the other half. Exits with 1 if a reader raised something other than
BadInput with one line, or took more than ten seconds or a GiB of memory for one file.
"""

import argparse
import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from benchmarks.arguments import at_least_one
from benchmarks.robustness.readers import READERS, Reader
from benchmarks.robustness.watched import Watched, alarmed
from circuits.errors import BadInput
from retrieval_interp.models.provenance import versions

WORD = re.compile(rb"[\w.+-]+")
TOKENS = (
    *(
        b"",
        b" ",
        b"\n",
        b"\t",
        b"\0",
        b"\xff",
        b"\xc3",
        b"- ",
        b"---\n",
        b"<<: *a",
        b"!!python/object/apply:os.system [ls]",
    ),
    *b": , \" ' # [ ] { } | % null true no ~ &a *a = ... !!binary 2024-13-45".split(),
    *b"0 -1 1.5 NaN -Infinity 1e999 99999999999999999999".split(),
    *b"__proto__ ../../x /etc/passwd L999999H999999 L0H0 query elsewhere x1 step <script>".split(),
    *("é".encode(), "𝟜".encode(), "\u202e".encode(), "\ud800".encode("utf-8", "surrogatepass")),
    *(b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"- " * 3000),
)


@st.composite
def damaged(draw: DrawFn, reader: Reader) -> bytes:
    """Draw a valid file that is changed in a few places or cut off."""
    content = draw(st.sampled_from(reader.whole()))
    for _ in range(draw(st.integers(1, 4))):
        words = [match.span() for match in WORD.finditer(content)] or [(0, 0)]
        first = draw(st.integers(0, len(content)))
        word = words[draw(st.integers(0, len(words) - 1))]
        at, end = draw(
            st.sampled_from([word, (first, first), (first, first + 1), (first, first + 40), (first, len(content))])
        )
        instead = draw(st.sampled_from(TOKENS) | st.binary(max_size=8) | st.just(content[at : at + 60] * 2))
        content = content[:at] + instead + content[end:]
    return content


class Tried(Watched):
    """The results of one reader on its files.

    Attributes:
        files: the number of files.
        refused: the number of files that were refused with BadInput.
    """

    def __init__(self, reader: Reader, folder: Path) -> None:
        super().__init__()
        self.reader, self.folder = reader, folder
        self.files = self.refused = 0
        for name, content in {**reader.beside(), reader.file: b""}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        for content in reader.whole():  # checks that valid files are read without an error
            (folder / reader.file).write_bytes(content)
            reader.read(folder)

    def __call__(self, content: bytes) -> None:
        """Give the reader a file."""
        self.files += 1
        (self.folder / self.reader.file).write_bytes(content)
        with self.watching(content):
            try:
                self.reader.read(self.folder)
            except BadInput as error:
                self.refused += 1
                if "\n" in str(error):
                    self.fault("more than one line", content)

    def to_json(self) -> dict[str, Any]:
        faults = {name: content[:2000].decode("latin-1") for name, content in self.faults.items()}
        return {"files": self.files, "refused": self.refused, **super().to_json(), "faults": faults}


def drawn(tried: Tried, n: int, start: int) -> None:
    """Give the reader ``n`` files drawn by hypothesis."""

    @seed(start)
    @settings(
        max_examples=n, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(damaged(tried.reader))
    def give(content: bytes) -> None:
        tried(content)

    give()


def guided(name: str, n: int, start: int) -> dict[str, Any]:
    """Give a reader ``n`` files made by atheris, and return the results."""
    command = [sys.executable, "-m", "benchmarks.robustness.guided_fuzz", name, str(n), str(start)]
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{name}: atheris stopped: {ended.stderr[-1000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def measure(name: str, n: int, start: int, with_atheris: bool) -> dict[str, Any]:
    """Give one reader ``n`` files, half of them made by atheris if it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        tried = Tried(READERS[name], Path(folder))
        drawn(tried, n - n // 2 if with_atheris else n, start)
    return {"drawn": tried.to_json(), "guided": guided(name, n // 2, start) if with_atheris else None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help=f"some of {', '.join(READERS)} (default: all)")
    parser.add_argument("--n", type=at_least_one, default=10_000, help="number of files for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    chosen = arguments.readers or [*READERS]
    if unknown := next((name for name in chosen if name not in READERS), None):
        parser.error(f"unknown reader {unknown!r}; expected some of {', '.join(READERS)}")
    signal.signal(signal.SIGALRM, alarmed)
    with_atheris = importlib.util.find_spec("atheris") is not None
    found = {}
    for name in chosen:
        found[name] = measure(name, arguments.n, arguments.seed, with_atheris)
        print(f"{name}: {found[name]}"[:400], file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        command = f"python -m benchmarks.robustness.fuzz --n {arguments.n} --seed {arguments.seed}"
        print(json.dumps({"command": command, **versions(), "readers": found}, indent=2))
    sys.exit(1 if any(half["faults"] for one in found.values() for half in one.values() if half) else 0)


if __name__ == "__main__":
    main()
