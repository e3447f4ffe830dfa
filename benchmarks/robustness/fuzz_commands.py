"""Give every command thousands of command lines; it must exit with 0, 1 or 2, and 2 only with a clear last line.

    python -m benchmarks.robustness.fuzz_commands --n 10000 --json > data/fuzz_commands.json

Two thirds of the lines are valid lines with one more option, or with another value in one place. The others have random
options of the command in any number and order. The values are unusual numbers, names and texts, and valid and damaged
files. Long work ends at its first batch; a line that gets there counts as good. Exits with 1 if a command raised an
exception, exited with another code, or took more than ten seconds or a GiB of memory.
"""

import argparse
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.arguments import at_least_one
from benchmarks.robustness.faults import a_store
from benchmarks.robustness.watched import PATIENCE, Watched, alarmed
from circuits import validate
from retrieval_interp import cli
from retrieval_interp.models import library
from retrieval_interp.models.provenance import metadata, versions

# Functions that would take long or use the network, by the names under which the commands find them.
LONG = (
    *(
        "circuits.losses.sequential_test.SequentialTest._run",
        "retrieval_interp.training.training_step.TrainingStep.__call__",
    ),
    *(
        "retrieval_interp.sweep.training.train_run",
        "retrieval_interp.experiments.emergence_page.write_emergence",
        "retrieval_interp.llm.run.eval_set",
    ),
    "retrieval_interp.tasks.writing.write",
    *("retrieval_interp.sweep.cluster.connect", "huggingface_hub.snapshot_download", "huggingface_hub.HfApi"),
)
COMPILING = "retrieval_interp.training.training_step.TrainingStep.compile"  # takes long; it is skipped
VALUES = (
    *("0", "1", "2", "7", "-1", "1e999", "nan", "inf", "0.05", "99999999999999999999", "٣", "1,3", "3-1"),
    *("1000", "1000000", "1000000000", "9223372036854775807", "1" + "0" * 30, "9" * 5000, "1e-320", "0.3", "0x10"),
    *("induction", "nowhere", "hf:a/b", "hf:", "micro", "tiny", "kingdoms", "figure4", "mockllm/model"),
    *("cpu", "cuda", "ray", "local", "paper", "laptop", "127.0.0.1:9", "é", "\udcff", "a\nb", "<script>", "%s", "{}"),
    *("whole", "damaged", "file", "out", "out/deep/er", "/proc/nowhere", "/dev/null", ".", "..", "missing.yaml"),
    *("--", "--help", "-x", "--json", "--out", "--seed", "--examples", "--threshold", "", "x" * 300),
)


WORKING = {  # valid lines
    "validate": "induction --examples 32 --seed 1 --threshold 0.1",
    "discover": "induction --seed 1 --threshold 0.1",
    "reproduce": "report.json --model induction",
    "view": "induction --examples 1 --layer 1 --head 0",
    "train": "tiny --out new --seed 0 --steps 20 --no-compile",
    "models presets": "",
    "models export": "whole exported",
    "models card": "whole",
    "models push": "whole hf:a/b",
    "study content-or-position": "induction --examples 8 --seed 0",
    "study probe": "induction --examples 64 --seed 0",
    "study scratchpad": "writing --examples 8 --seed 0",
    "study emergence": "transformer_d --seed 0",
    "study depth-sweep": "1 --seeds 1 --steps 20 --out new",
    "study sweep": "plan.yaml --out new --device cpu",
    "study census": "store --threshold 0.1",
    "study claims": "--json",
    "theory depth": "3 --json",
    "theory facts": "facts.yaml",
    "theory gradients": "induction --examples 2 --seed 0",
    "llm prompts": "equations --n 3 --steps 2 --chains 3 --seed 0",
    "llm ask": "--model hooked/equations --formulations equations --steps 1-2 --samples 2 --attempts 1 --out new",
}


class Reached(BaseException):
    """Raised where long work would begin."""


def scratch(folder: Path) -> None:
    """Write files for commands: a valid and a damaged model directory, a report, facts, a plan, a store, a text."""
    for name in ("whole", "damaged"):
        (folder / name).mkdir()
        for path in library.data_folder().joinpath("induction").iterdir():
            (folder / name / path.name).write_bytes(path.read_bytes()[: None if name == "whole" else 200])
    model, task, circuit = library.load("induction")
    report = validate(model, task, circuit, n_examples=32, metadata=metadata("induction", model))
    (folder / "report.json").write_text(json.dumps(report.to_json()))
    (folder / "facts.yaml").write_bytes(next(library.data_folder().glob("facts/*.yaml")).read_bytes())
    (folder / "plan.yaml").write_text("seeds: 1\npresets: [tiny]\n")
    (folder / "file").write_text("heads: {L0H0: previous}\n")
    a_store(folder)


def reached(*_: object, **__: object) -> None:
    raise Reached


class Tried(Watched):
    """The results of one command on its lines.

    Attributes:
        lines: the number of lines.
        refused: the number of lines that exited with 2.
        began: the number of lines that would have started long work.
    """

    def __init__(self, patience: int = PATIENCE) -> None:
        super().__init__(patience)
        self.lines = self.refused = self.began = 0

    def __call__(self, line: list[str]) -> None:
        """Give the command a line."""
        self.lines += 1
        out, errors = io.StringIO(), io.StringIO()
        with self.watching(line), redirect_stdout(out), redirect_stderr(errors):
            try:
                cli.main(line)
            except Reached:
                self.began += 1
            except SystemExit as ended:
                self._ended(ended.code, errors.getvalue(), line)

    def _ended(self, code: object, errors: str, line: list[str]) -> None:
        if code not in (0, 1, 2, None):
            self.fault(f"ended with {code}", line)
        if code == 2:
            self.refused += 1
            last = errors.splitlines()[-1] if errors else ""
            if not last.startswith("retrieval-interp: ") or "Traceback" in errors:
                self.fault("no clear line", line)

    def to_json(self) -> dict[str, Any]:
        counted = {"lines": self.lines, "refused": self.refused, "would_have_begun": self.began}
        return {**counted, **super().to_json()}


def measure(name: str, command: Any, n: int, start: int) -> dict[str, Any]:
    """Give one command ``n`` lines."""
    value, working = st.sampled_from(VALUES), WORKING[name].split()
    options = [st.just(["--help"])] + [
        st.just([option]) if parameter.is_flag else value.map(lambda text, option=option: [option, text])
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("-")
    ]
    noise = st.lists(value | st.text(max_size=4), max_size=2)
    drawn = st.tuples(st.lists(value, max_size=2), st.lists(st.one_of(options), max_size=3), noise | st.just([]))
    anything = drawn.map(lambda parts: [*parts[0], *(text for pair in parts[1] for text in pair), *parts[2]])
    longer = st.one_of(options).map(lambda option: [*working, *option])
    places = st.integers(0, max(len(working) - 1, 0))
    other = st.tuples(places, value).map(lambda one: [*working[: one[0]], one[1], *working[one[0] + 1 :]])
    Tried(600)([*name.split(), "nowhere"])  # warm-up: imports take long
    tried = Tried()

    @seed(start)
    @settings(
        max_examples=n, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(anything | longer | other)
    def give(line: list[str]) -> None:
        tried([*name.split(), *line])

    give()
    return tried.to_json()


def every_command(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all commands of a group with their names, such as ``study census``."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from every_command(one, f"{before}{name} ")
        else:
            yield f"{before}{name}", one


def main() -> None:
    commands = {name: one for name, one in every_command(typer.main.get_command(cli.app)) if name != "demo"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help=f"some of {', '.join(commands)} (default: all)")
    parser.add_argument("--n", type=at_least_one, default=10_000, help="number of lines for each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    if unknown := next((name for name in arguments.commands if name not in commands), None):
        parser.error(f"unknown command {unknown!r}; expected some of {', '.join(commands)}")
    signal.signal(signal.SIGALRM, alarmed)
    found = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch(Path(folder))
        os.chdir(folder)
        for long in LONG:
            stack.enter_context(patch(long, reached))
        stack.enter_context(patch(COMPILING))
        for name in arguments.commands or commands:
            found[name] = measure(name, commands[name], arguments.n, arguments.seed)
            print(f"{name}: {found[name]}"[:400], file=sys.stderr if arguments.json else sys.stdout, flush=True)
        os.chdir("/")
    if arguments.json:
        command = f"python -m benchmarks.robustness.fuzz_commands --n {arguments.n} --seed {arguments.seed}"
        print(json.dumps({"command": command, **versions(), "commands": found}, indent=2))
    sys.exit(1 if any(one["faults"] for one in found.values()) else 0)


if __name__ == "__main__":
    main()
