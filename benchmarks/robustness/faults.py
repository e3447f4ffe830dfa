"""Kill commands at random moments, run them again, and compare the results with those of undisturbed runs.

    python -m benchmarks.robustness.faults --json

Every command runs in its own process, which gets SIGKILL, SIGTERM and SIGINT in turn at a random moment. Every other
time, the signal comes at the first moment after that at which a file is being written. Then the command runs again in
the same folder (a training with --resume), until it ends. Its files must equal those of an undisturbed run: the same
files and no others, with the same content except measured times. Inspect's logs have the time in their names; they
must have the same answers. Exits with 1 if the files differ.
"""

import argparse
import io
import itertools
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from inspect_ai.log import read_eval_log
from safetensors import numpy as safetensors

from benchmarks import questions
from benchmarks.arguments import at_least_one
from benchmarks.robustness.untrained import write_untrained
from circuits.utils.files import PARTIAL
from retrieval_interp import cli
from retrieval_interp.llm.results import logs_in
from retrieval_interp.models.build import build
from retrieval_interp.models.library import load
from retrieval_interp.models.model_dir import CONFIG, LOCK
from retrieval_interp.models.presets import PRESETS, Architecture, Preset, Recipe
from retrieval_interp.models.provenance import versions
from retrieval_interp.sweep.store import LOCKS, Result, Store, Trained
from retrieval_interp.tasks.retrieval import RetrievalTask

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 300.0  # seconds until a command counts as hanging
OUTPUT = "output.txt"  # the file with the output of the commands
MICRO = Preset(
    RetrievalTask(1, n_chains=2),
    Architecture(2, 1, d_model=16, d_head=8),
    Recipe(steps=40, batch=4, training_examples=64, lr=2e-3, warmup=10, checkpoint_every=2),
)
PLAN = "seeds: 2\npresets: [micro, micro_1]\n"
MODULES = (
    *("experiments.emergence_page", "experiments.observations"),
    *("reproduction.stored_report", "training.training", "llm.page", "llm.run"),
    *("census.census_page", "figure4.figure4_page"),
)
TIMES = re.compile(rb'"(training_)?seconds\w*": [0-9.e-]+')  # measured times in JSON


@dataclass(frozen=True)
class Kind:
    """A kind of work that is killed.

    Attributes:
        command: runs the work in a folder, or resumes it.
        prepare: writes the files that the work needs into the folder.
        left: returns the results in the folder, by name.
    """

    command: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    left: Callable[[Path], dict[str, object]] = lambda folder: left(folder)


def run(*arguments: object) -> None:
    """Run a command of the toolkit."""
    cli.main([str(argument) for argument in arguments])


def training(folder: Path) -> None:
    started = (folder / "run" / CONFIG).exists()
    run("train", *(["--resume"] if started else ["micro"]), "--no-compile", "--out", folder / "run")


def a_plan(folder: Path) -> None:
    (folder / "plan.yaml").write_text(PLAN)


def sweep(folder: Path) -> None:
    run("study", "sweep", folder / "plan.yaml", "--weights", "--device", "cpu", "--out", folder / "store")


def discovery(folder: Path) -> None:
    run("discover", "induction", "--out", folder / "circuit.yaml", "--report", folder / "report")


def validation(folder: Path) -> None:
    run("validate", "induction", "--out", folder / "report")


def emergence(folder: Path) -> None:
    run("study", "emergence", folder / "run", "--circuit", folder / "circuit.yaml", "--out", folder / "report")


def a_run(folder: Path) -> None:
    os.waitpid(in_a_process(lambda: training(folder), folder), 0)
    (folder / "circuit.yaml").write_text("heads: {L1H0: {query: pair1.second, elsewhere: uniform}}\n")


def census(folder: Path) -> None:
    run("study", "census", folder / "store", "--threshold", "0.1")


def a_store(folder: Path) -> None:
    store, chosen = Store(folder / "store"), PRESETS["induction"]
    learned = load("induction").model
    nothing = build(chosen.task, chosen.config, seed=1)
    for seed, model in enumerate((learned, nothing)):
        store.add(Trained(Result("induction", seed, {"x1": 0.1}, {"x1": 100}, 1.0, "cpu"), "{}\n", model.state_dict()))


def depth_sweep(folder: Path) -> None:
    run("study", "depth-sweep", "1", "--seeds", "1", "--steps", "20", "--out", folder / "runs")


def questions_asked(folder: Path) -> None:
    options = ("--formulations", "equations", "--steps", "1-2", "--samples", "20", "--attempts", "2")
    model = f"hooked/{folder / 'model'}"
    run("llm", "ask", "--model", model, *options, "--temperature", "0", "--out", folder / "report")


def a_language_model(folder: Path) -> None:
    write_untrained(folder / "model")


def answers(folder: Path) -> dict[str, object]:
    """Return the files in a folder, with the answers in Inspect's logs instead of the logs.

    A log also has the answers of the log before it, which remains if its process was killed. The same answer may
    therefore be in both.
    """
    logs = folder / "report" / "logs"
    found = {name: value for name, value in left(folder).items() if not (folder / name).is_relative_to(logs)}
    given: dict[str, dict[str | None, str]] = {}
    for path in logs_in(logs):
        log = read_eval_log(str(path))
        for sample in (one for one in log.samples or () if one.scores):  # the others have no answer
            name = f"{log.eval.task}, {log.eval.task_args['steps']} steps, question {sample.id}"
            given.setdefault(name, {})[sample.uuid] = f"{sample.output.completion!r}: {sample.scores}"
    return found | {name: [*of_one.values()] for name, of_one in given.items()}


def benchmark(folder: Path) -> None:
    sys.argv = ["questions", "--n", "200", "--json"]
    with (folder / "questions.json").open("w") as file, redirect_stdout(file):
        questions.main()


KINDS = {
    "training": Kind(training),
    "sweep": Kind(sweep, a_plan),
    "census": Kind(census, a_store),
    "discovery": Kind(discovery),
    "validation": Kind(validation),
    "emergence": Kind(emergence, a_run),
    "depth_sweep": Kind(depth_sweep),
    "llm": Kind(questions_asked, a_language_model, answers),
    "benchmark": Kind(benchmark),
}


def in_a_process(work: Callable[[], object], folder: Path) -> int:
    """Start work in a new process, and return the process id."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the new process has set up its output
    if process := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process
    code = 130  # a KeyboardInterrupt
    try:
        with (folder.parent / OUTPUT).open("a") as output, redirect_stdout(output), redirect_stderr(output):
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            code = exit_code(work)
    finally:
        os._exit(code)


def exit_code(work: Callable[[], object]) -> int:
    """Do work, and return its exit code."""
    try:
        work()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 3 if exit.code else 0
    except Exception:
        traceback.print_exc()
        return 3
    return 0


def ended(process: int, patience: float) -> int | None:
    """Return the exit code of a process, or minus its signal; None if it does not end within so many seconds."""
    until = time.monotonic() + patience
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.001)


def being_written(folder: Path) -> bool:
    """Whether a folder has a partial file."""
    return any(name.endswith(PARTIAL) for _, _, names in os.walk(folder) for name in names)


def left(folder: Path) -> dict[str, object]:
    """Return the contents of all files in a folder, without locks and measured times."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    paths = (path for path in files if path.parent.name != LOCKS and path.name != LOCK)
    return {str(path.relative_to(folder)): content(path, folder) for path in paths}


def content(path: Path, folder: Path) -> object:
    raw = path.read_bytes()
    for name in (str(folder), str(folder).replace("/", r"\u002f")):  # the path itself, and as plotly escapes it
        raw = raw.replace(name.encode(), b"")
    if path.suffix == ".safetensors":
        return {name: tensor.tobytes() for name, tensor in safetensors.load(raw).items()}
    if path.suffix == ".csv":
        header = [line for line in raw.splitlines() if line.startswith(b"#")]
        return header, pd.read_csv(io.BytesIO(raw), comment="#").drop(columns="seconds", errors="ignore").to_csv()
    return TIMES.sub(b"", raw)


class Killed:
    """Work of one kind that is killed repeatedly.

    Attributes:
        landed: the number of kills that hit a running process, by signal.
        while_writing: the number of these kills that hit while a file was being written.
        folders: the number of folders in which the work ended.
        faults: the faults.
    """

    def __init__(self, kind: Kind, kills: int, seed: int, scratch: Path) -> None:
        self.kind, self.kills = kind, kills
        self.landed: Counter[str] = Counter()
        self.while_writing = self.folders = 0
        self.faults: list[str] = []
        self._chance = random.Random(seed)
        self._scratch = (scratch / str(n) / "work" for n in itertools.count())
        self._tries = itertools.count()
        again, _ = self._undisturbed()
        started = time.monotonic()
        self.expected, self._code = self._undisturbed()
        self.seconds = time.monotonic() - started
        self.varying = sorted(name for name in self.expected if self.expected[name] != again.get(name))

    def to_the_end(self) -> None:
        """Kill and rerun the work until there were enough kills and the work in the last folder has ended."""
        while self.landed.total() < self.kills:
            folder = self._folder()
            while (code := self._try(folder)) is None:
                pass
            self.folders += 1
            if code != self._code:
                self.faults.append(f"ended with {code}: {self._output(folder)}")
            self._compare(self.kind.left(folder))
            print(f"\r{self.landed.total()} kills ", end="", file=sys.stderr, flush=True)

    def _try(self, folder: Path) -> int | None:
        """Run the command until it ends or is killed, and return its exit code, or None if it was killed."""
        process = in_a_process(lambda: self.kind.command(folder), folder)
        if self.landed.total() >= self.kills:
            return self._wait(process)
        code = ended(process, self._chance.uniform(0, self.seconds))
        if code is None and next(self._tries) % 2:
            until = time.monotonic() + self.seconds
            while code is None and not being_written(folder) and time.monotonic() < until:
                code = ended(process, 0)
        if code is not None:
            return code
        number, writing = SIGNALS[self.landed.total() % len(SIGNALS)], being_written(folder)
        os.kill(process, number)
        code = self._wait(process)
        if code not in (-number, 130):  # it ended before the signal
            return code
        self.landed[number.name] += 1
        self.while_writing += writing
        return None

    def _wait(self, process: int) -> int:
        code = ended(process, PATIENCE)
        if code is None:
            self.faults.append("hung")
            os.kill(process, signal.SIGKILL)
            code = ended(process, PATIENCE)
        return code or 0

    def _compare(self, found: Mapping[str, object]) -> None:
        for fault, names in {
            "missing": self.expected.keys() - found.keys(),
            "stray": found.keys() - self.expected.keys(),
            "different": {name for name in found if found[name] != self.expected.get(name, found[name])}
            - {*self.varying},
        }.items():
            self.faults += [f"{fault}: {name}" for name in sorted(names)]

    def _undisturbed(self) -> tuple[dict[str, object], int]:
        folder = self._folder()
        code = self._wait(in_a_process(lambda: self.kind.command(folder), folder))
        if code not in (0, 1):
            raise RuntimeError(f"the command fails without a kill: {self._output(folder)}")
        return self.kind.left(folder), code

    def _folder(self) -> Path:
        folder = next(self._scratch)
        folder.mkdir(parents=True)
        self.kind.prepare(folder)
        return folder

    def _output(self, folder: Path) -> str:
        return (folder.parent / OUTPUT).read_text()[-300:]


def measure(kind: Kind, kills: int, seed: int) -> dict[str, Any]:
    """Kill work of one kind so many times, and return the results."""
    with tempfile.TemporaryDirectory() as scratch:
        killed = Killed(kind, kills, seed, Path(scratch))
        killed.to_the_end()
    return {
        "kills": dict(killed.landed),
        "while_a_file_was_written": killed.while_writing,
        "brought_to_an_end": killed.folders,
        "seconds_undisturbed": round(killed.seconds, 2),
        "files": len(killed.expected),
        "varying_without_a_kill_too": killed.varying,
        "faults": killed.faults,
    }


def prepare() -> None:
    """Set up this process, from which all commands are forked."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore SIGINT
    torch.set_num_threads(1)  # for bit-identical results, and because threads do not survive a fork
    torch._dynamo.config.disable = True
    for module in ("circuits.validation.report_files", *(f"retrieval_interp.{name}" for name in MODULES)):
        import_module(module)  # imported once, instead of in every process
    PRESETS.update(micro=MICRO, micro_1=replace(MICRO, task=RetrievalTask(2, n_chains=2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--kills", type=at_least_one, default=50, help="number of kills of every kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    chosen = arguments.kinds or [*KINDS]
    if unknown := next((name for name in chosen if name not in KINDS), None):
        parser.error(f"unknown kind {unknown!r}; expected some of {', '.join(KINDS)}")
    prepare()
    found = {}
    for name in chosen:
        print(name, file=sys.stderr)
        found[name] = measure(KINDS[name], arguments.kills, arguments.seed)
        print(file=sys.stderr)
    if arguments.json:
        command = f"python -m benchmarks.robustness.faults {' '.join([*arguments.kinds, ''])}--kills {arguments.kills}"
        print(json.dumps({"command": f"{command} --seed {arguments.seed}", **versions(), "kinds": found}, indent=2))
    else:
        for name, one in found.items():
            print(f"{name}: {one}")
    sys.exit(1 if any(one["faults"] for one in found.values()) else 0)


if __name__ == "__main__":
    main()
