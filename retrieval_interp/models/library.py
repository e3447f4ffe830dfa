"""Loading models: by path, from the Hugging Face Hub, or by the name of a model that comes with the toolkit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from circuits.model.language import from_pretrained
from circuits.model.transformer import Transformer
from circuits.utils.files import to_path
from retrieval_interp.models import smollm2
from retrieval_interp.models.checkpoints import fill, load_model, load_tensors, most_numbers
from retrieval_interp.models.hub import PREFIX, fetch
from retrieval_interp.models.importances import read_heads
from retrieval_interp.models.machine import chosen
from retrieval_interp.models.model_dir import CIRCUIT, CONFIG, read_config, shape_from, some_checkpoints, task_from
from retrieval_interp.tasks.task import TrainableTask


class Loaded(NamedTuple):
    """A model with its task and its circuit.

    Attributes:
        model: the model, in evaluation mode.
        task: the task that the model was trained on; None for ``smollm2`` (``on_task`` gives it one).
        circuit: the circuit in the model directory; None if there is none.
    """

    model: Transformer
    task: TrainableTask | None
    circuit: Circuit | None


def data_folder() -> Path:
    """Return the folder of the models that come with the toolkit: in the installed wheel, or in the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "data"
    return inside if inside.is_dir() else package.parent / "data"


def find(name: str | Path) -> Path:
    """Return the model directory for a path, a Hub address or a name; BadInput with all names if there is none."""
    if str(name).startswith(PREFIX):
        return fetch(str(name))
    if name == smollm2.NAME:
        raise BadInput(smollm2.NO_TASK)
    try:
        if (folder := to_path(name)).is_dir():
            return folder
        if (data_folder() / name / CONFIG).is_file():
            return data_folder() / name
    except (OSError, ValueError) as error:
        raise BadInput(f"{str(name)[:80]}: is no path ({error})") from error
    known = ", ".join(sorted(path.parent.name for path in data_folder().glob(f"*/{CONFIG}"))) or "none"
    raise BadInput(f"{name}: no such model directory, nor a transformer that comes with the toolkit ({known})")


def is_local(name: str) -> bool:
    """Whether a name leads to a model on this machine, ours or in Hugging Face's format, without a download."""
    return to_path(name).is_dir() or name == smollm2.NAME or (is_ours(name) and not name.startswith(PREFIX))


def is_ours(name: str) -> bool:
    """Whether a name is that of a model directory; a config in Hugging Face's format names the type of the model."""
    if str(name).startswith(PREFIX):
        return True
    try:
        folder = path if (path := to_path(name)).is_dir() else data_folder() / name
        return (folder / CONFIG).is_file() and '"model_type"' not in (folder / CONFIG).read_text(encoding="utf-8")
    except (OSError, ValueError):  # no path, or no text
        return False


def load(name: str | Path) -> Loaded:
    """Load a model directory, a repository of the Hugging Face Hub, or a transformer that comes with the toolkit.

    Args:
        name: a path, ``hf:owner/name`` for a repository of the Hub, or a name such as ``transformer_a`` or ``smollm2``.

    Returns:
        ``model, task, circuit``; the circuit is None if the directory has none.

    Raises:
        BadInput: the model is missing or damaged, or its files do not match.
    """
    if name == smollm2.NAME:
        return Loaded(from_pretrained(smollm2.folder(), **chosen()), None, None)
    folder = find(name)
    circuit = own_circuit(folder)
    return Loaded(*load_model(folder), circuit)


def own_circuit(folder: Path) -> Circuit | None:
    """Return the circuit in a model directory, or None if there is none; BadInput if its file is damaged."""
    path = folder / CIRCUIT
    return load_circuit(path) if path.exists() else None


def chosen_circuit(name: str | Path, path: Path | None = None) -> Circuit:
    """Return the circuit of a file, or the one in a model directory (see ``find``); BadInput if there is none.

    A file that ends in ``.json`` is a graph of another tool (``read_heads``).
    """
    if path is not None and path.suffix == ".json":
        return read_heads(path)
    circuit = own_circuit(find(name)) if path is None else load_circuit(path)
    if circuit is None:
        raise BadInput(f"{name}: has no {CIRCUIT}; name one with --circuit")
    return circuit


def own_task(folder: Path) -> TrainableTask:
    """Return the task of a model directory, without loading the model."""
    return task_from(read_config(folder), folder / CONFIG)


def own_size(folder: Path) -> tuple[int, int]:
    """Return the number of layers and the number of heads per layer, without loading the model."""
    shape = shape_from(read_config(folder), folder / CONFIG)
    return shape.n_layers, shape.n_heads


def through_training(run: Path | str) -> Iterator[tuple[int, Transformer]]:
    """Yield every checkpoint of a run: its step and the model.

    The same model object is yielded every time, with new weights, so that only one model is in memory.

    Args:
        run: the folder of the run, or a name such as ``transformer_d``.

    Raises:
        BadInput: the run has no checkpoints, or a checkpoint is damaged or does not fit the config.
    """
    run = find(run)
    first, *others = some_checkpoints(run).items()
    model, _ = load_model(run, first[1])
    yield first[0], model
    for step, path in others:
        fill(model, load_tensors(path, most_numbers(model.cfg))[0], path)
        yield step, model
