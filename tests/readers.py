"""The readers: everything that the toolkit reads from files, with valid files for each."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import inspect_ai
import torch
from safetensors.torch import save

from circuits.circuit_file import PATTERNS, load_circuit, parse_circuit
from retrieval_interp.llm.results import results
from retrieval_interp.llm.tasks import TASKS
from retrieval_interp.models.build import build
from retrieval_interp.models.checkpoints import load_model
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import CONFIG, LOG, STATE, WEIGHTS, architecture_from, read_config, task_from
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.reproduction import read_report
from retrieval_interp.sweep.plan import PLANS, load_plan
from retrieval_interp.sweep.run import read_runs
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.theory.facts import load_facts
from retrieval_interp.training.curves import read_attention, read_losses
from retrieval_interp.training.training import TrainingRun, run_config
from tests.llm_models import mock

MICRO = Preset(
    RetrievalTask(1, n_chains=2, n_dims=2),
    Architecture(1, 1, d_model=4, d_head=4, mlp=False),
    Recipe(steps=40, batch=4, training_examples=8, lr=2e-3, warmup=10),
)
LARGEST = 20_000  # most bytes of a valid file; longer ones are cut at the end of a line


@dataclass(frozen=True)
class Reader:
    """A kind of file that the toolkit reads."""

    file: str  # the path of the file in a folder
    whole: Callable[[], list[bytes]]  # returns the contents of valid files
    read: Callable[[Path], object]  # reads the file in a folder
    beside: Callable[[], dict[str, bytes]] = dict  # returns the other files that must be in the folder, by path


def of_data(pattern: str) -> Callable[[], list[bytes]]:
    """Return a function that returns the contents of the files of a pattern that come with the toolkit."""

    def whole() -> list[bytes]:
        texts = [path.read_bytes() for path in sorted(data_folder().glob(pattern))]
        return [text if len(text) <= LARGEST else text[: text.rindex(b"\n", 0, LARGEST) + 1] for text in texts]

    return whole


def circuits() -> list[bytes]:
    """Return the circuits that come with the toolkit; each names its own file of fixed patterns."""
    found = sorted(data_folder().glob("*/circuit.yaml"))
    return [path.read_bytes().replace(b"file: circuit", f"file: {path.parent.name}".encode()) for path in found]


def fixed_patterns() -> dict[str, bytes]:
    found = data_folder().glob(f"*/circuit{PATTERNS}")
    return {f"{path.parent.name}{PATTERNS}": path.read_bytes() for path in found}


def config(folder: Path) -> None:
    found = read_config(folder)
    architecture_from(found, task_from(found, folder / CONFIG), folder / CONFIG)


def small_reports() -> list[bytes]:
    """Return the reports that come with the toolkit, with most lists cut to two entries, and of a small circuit."""
    text = "heads: {L0H0: previous}\n"
    small = {"name": "", "description": "", "yaml": text, "sha256": parse_circuit(text).digest}

    def two(document: object) -> object:
        if isinstance(document, dict) and "yaml" in document:
            return small
        if isinstance(document, list):
            return [two(one) for one in document[:2]]
        return {key: two(one) for key, one in document.items()} if isinstance(document, dict) else document

    reports = [json.loads(path.read_bytes()) for path in sorted(data_folder().glob("*/report.json"))]
    return [json.dumps({**two(one), "statements": one["statements"]}, indent=1).encode() for one in reports]


@cache
def micro_config() -> bytes:
    return run_config("micro", MICRO, 0).encode()


@cache
def micro_weights() -> bytes:
    return save({k: v.contiguous() for k, v in micro_model().state_dict().items()})


def micro_model() -> torch.nn.Module:
    return build(MICRO.task, MICRO.config, 0)


@cache
def micro_state() -> bytes:
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in micro_model().state_dict().items()}
    return save({**tensors, "running": torch.zeros(1, dtype=torch.float64)}, {"step": "0", "seconds": "1.0"})


@cache
def inspect_log(format: Literal["json", "eval"]) -> bytes:
    """Return an Inspect log of a model that gives the same answer to every question."""
    with tempfile.TemporaryDirectory() as folder:
        task = TASKS["kingdoms"](samples=1, attempts=2)
        inspect_ai.eval(task, model=mock(lambda _: "Berlin"), log_dir=folder, log_format=format, display="none")
        (path,) = Path(folder).glob(f"*.{format}")
        return path.read_bytes()


ATTENTION = b"# by a command\nstep,L0H0 pair1.second -> pair1.first,L1H0 * -> previous\n80,0.1,0.25\n160,0.9,1.0\n"

READERS = {
    "circuit": Reader("c.yaml", circuits, lambda folder: load_circuit(folder / "c.yaml"), fixed_patterns),
    "config": Reader(CONFIG, of_data("*/config.json"), config),
    "weights": Reader(WEIGHTS, lambda: [micro_weights()], load_model, lambda: {CONFIG: micro_config()}),
    "training state": Reader(
        STATE,
        lambda: [micro_state()],
        lambda folder: TrainingRun(folder, torch.device("cpu"), compiled=False),
        lambda: {CONFIG: micro_config()},
    ),
    "log": Reader(LOG, of_data("*/log.jsonl"), lambda folder: read_losses(folder / LOG)),
    "table of attention": Reader("a.csv", lambda: [ATTENTION], lambda folder: read_attention(folder / "a.csv")),
    "table of runs": Reader("r.csv", of_data("sweeps/figure4_laptop/runs.csv"), lambda f: read_runs(f / "r.csv")),
    "report": Reader("report.json", small_reports, lambda folder: read_report(folder / "report.json")),
    "log of Inspect": Reader("l.json", lambda: [inspect_log("json")], lambda folder: results([folder / "l.json"])),
    "packed log of Inspect": Reader("l.eval", lambda: [inspect_log("eval")], lambda f: results([f / "l.eval"])),
    "facts": Reader("facts.yaml", of_data("facts/*.yaml"), lambda f: load_facts(f / "facts.yaml").layers(causal=True)),
    "sweep": Reader(
        "plan.yaml",
        lambda: [path.read_bytes() for path in sorted(PLANS.glob("*.yaml"))],
        lambda folder: load_plan(folder / "plan.yaml"),
    ),
}
