"""Language models as HookedTransformers: the toolkit's own and pretrained ones."""

import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import AutoTokenizer

from circuits.errors import BadInput
from circuits.model.hooked_transformer import HookedTransformer
from circuits.model.language import from_pretrained
from circuits.model.transformer import Transformer
from retrieval_interp.language_tasks.metric import Metric, MetricProblem
from retrieval_interp.language_tasks.registry import check_task, language_task
from retrieval_interp.models import library
from retrieval_interp.models.model_dir import CONFIG, read_config

TOKENIZER = "tokenizer_config.json"  # only folders in Hugging Face's format have this file


def language_model(name: str, **options: Any) -> Transformer:
    """Load a language model as a HookedTransformer with a tokenizer.

    Args:
        name: one of: a model directory; ``hf:owner/name``; a model that comes with the toolkit; a folder in Hugging
            Face's format (config, safetensors, tokenizer); a name that ``HookedTransformer.from_pretrained`` knows,
            such as ``gpt2``.
        options: keyword arguments of ``from_pretrained``.

    Raises:
        BadInput: there is no such model, or it has no tokenizer.
    """
    folder = Path(name)
    pretrained = (folder / TOKENIZER).is_file()
    ours = folder.is_dir() or name.startswith(library.PREFIX) or (library.data_folder() / name / CONFIG).is_file()
    if ours and not pretrained:
        return reader(name)
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):  # TransformerLens prints to stdout
            warnings.filterwarnings("ignore", message="HookedTransformer")
            return (_of_folder(folder, options) if pretrained else _pretrained(name, options)).eval()
    except Exception as error:  # the libraries raise many kinds of errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        reason = reason.partition(" Valid official model names")[0]  # a list of hundreds of names follows
        raise BadInput(f"{name}: no model directory, and cannot be loaded as a pretrained model ({reason})") from error


def reader(name: str) -> Transformer:
    """Load a model that reads text, for the circuit tools, on any version of TransformerLens.

    Args:
        name: a model directory with a tokenizer; ``hf:owner/name``; a model that comes with the toolkit; or whatever
            ``circuits.model.from_pretrained`` loads, such as ``gpt2`` or a folder in Hugging Face's format.

    Raises:
        BadInput: there is no such model, it has no tokenizer, or TransformerLens does not support it.
    """
    if not name.startswith(library.PREFIX):
        try:
            read_config(Path(name) if Path(name).is_dir() else library.data_folder() / name)
        except (BadInput, OSError, ValueError):  # no model directory of this toolkit
            return from_pretrained(name)
    model: Transformer = library.load(name).model
    if model.tokenizer is None:
        raise BadInput(f"{name}: reads no text; expected a model with a tokenizer")
    return model


def on_task(name: str, task: str, metric: str = Metric.logit_difference) -> tuple[Transformer, MetricProblem]:
    """Load a language model, and return it with a language task as a problem.

    Args:
        name: as for ``reader``.
        task: the name of a language task, such as ``ioi``.
        metric: ``logit_difference``, ``probability`` or ``kl``.

    Raises:
        BadInput: there is no such model, task or metric; or the task does not fit the model's tokenizer.
        Unsolved: the model does not do the task.
    """
    check_task(task)
    if metric not in [*Metric]:
        raise BadInput(f"unknown metric {metric!r}; expected {', '.join(Metric)}")
    model = reader(name)
    return model, MetricProblem.of(model, language_task(task, model.tokenizer), Metric(metric))


def _pretrained(name: str, options: dict[str, Any]) -> Transformer:
    """Load a pretrained model from safetensors only; pickle files are never loaded."""
    if not hasattr(HookedTransformer, "from_pretrained"):
        raise BadInput("TransformerLens 4 has no HookedTransformer.from_pretrained; it takes TransformerLens 3.9")
    return HookedTransformer.from_pretrained(name, **{"use_safetensors": True, **options})


def _of_folder(folder: Path, options: dict[str, Any]) -> Transformer:
    """Load a folder under a plain name, since TransformerLens only loads registered names and parses them."""
    from transformer_lens.loading_from_pretrained import OFFICIAL_MODEL_NAMES

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with TemporaryDirectory() as plain:
        link = Path(plain) / "model"
        link.symlink_to(folder.resolve(), target_is_directory=True)
        OFFICIAL_MODEL_NAMES.append(str(link))
        try:
            return _pretrained(str(link), {"tokenizer": tokenizer, **options})
        finally:
            OFFICIAL_MODEL_NAMES.remove(str(link))
