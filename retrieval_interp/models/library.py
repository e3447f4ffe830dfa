"""Loading a model directory by path, from the Hugging Face Hub, or one of the trained transformers by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from circuits.utils.lazy import transformer_lens
from retrieval_interp.models.checkpoints import fill, load_model, load_tensors, most_numbers
from retrieval_interp.models.hub import PREFIX, fetch
from retrieval_interp.models.model_dir import CIRCUIT, CONFIG, read_config, size_from, some_checkpoints, task_from
from retrieval_interp.tasks.task import Task


class Loaded(NamedTuple):
    """A model with its task, and its circuit where one stands beside it."""

    model: transformer_lens.HookedTransformer
    task: Task
    circuit: Circuit | None


def data_folder() -> Path:
    """Where the trained transformers lie: inside an installed wheel, or in the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "data"
    return inside if inside.is_dir() else package.parent / "data"


def find(name: str | Path) -> Path:
    """The model directory of that path, address or name.

    Raises:
        BadInput: there is none; the message lists the names.
    """
    if str(name).startswith(PREFIX):
        return fetch(str(name))
    try:
        if Path(name).is_dir():
            return Path(name)
        if (data_folder() / name / CONFIG).is_file():
            return data_folder() / name
    except (OSError, ValueError) as error:
        raise BadInput(f"{str(name)[:80]}: is no path ({error})") from error
    known = ", ".join(sorted(path.parent.name for path in data_folder().glob(f"*/{CONFIG}"))) or "none"
    raise BadInput(f"{name}: no such model directory, nor a transformer that comes with the toolkit ({known})")


def load(name: str | Path) -> Loaded:
    """Load a model directory, of this machine or of the Hub, or a transformer that comes with the toolkit.

    Args:
        name: a path, ``hf:owner/name`` for a repository of the Hugging Face Hub, or a name such as ``transformer_a``.

    Returns:
        ``model, task, circuit``; the circuit is None where the directory holds none.

    Raises:
        BadInput: it is missing, damaged, or does not fit together.
    """
    folder = find(name)
    circuit = own_circuit(folder)
    return Loaded(*load_model(folder), circuit)


def own_circuit(folder: Path) -> Circuit | None:
    """The circuit that stands in a model directory; None where there is none.

    Raises:
        BadInput: it is damaged.
    """
    path = folder / CIRCUIT
    return load_circuit(path) if path.exists() else None


def own_task(folder: Path) -> Task:
    """The task of a model directory, without its model.

    Raises:
        BadInput: its config is damaged, or missing.
    """
    return task_from(read_config(folder), folder / CONFIG)


def own_size(folder: Path) -> tuple[int, int]:
    """The numbers of layers, and of heads in each, of the model in a directory, without the model.

    Raises:
        BadInput: its config is damaged, or missing.
    """
    return size_from(read_config(folder), folder / CONFIG)


def through_training(run: Path | str) -> Iterator[tuple[int, transformer_lens.HookedTransformer]]:
    """Every checkpoint of a run with its step: always the same model, so that one is in memory.

    Args:
        run: its folder, or a name such as ``transformer_d``.

    Raises:
        BadInput: the run has none, or one of them is damaged or does not fit the config.
    """
    run = find(run)
    first, *others = some_checkpoints(run).items()
    model, _ = load_model(run, first[1])
    yield first[0], model
    for step, path in others:
        fill(model, load_tensors(path, most_numbers(model.cfg))[0], path)
        yield step, model
