"""A model directory: its files and its config.

It holds ``config.json`` and ``model.safetensors`` (HookedTransformer's keys), and optionally ``circuit.yaml`` and
``log.jsonl``. Training adds ``state.safetensors`` (to resume from) and ``checkpoints/step-*.safetensors``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.model.transformer import hooked_transformer
from circuits.utils.files import read_text
from circuits.utils.lazy import torch
from retrieval_interp.tasks.registry import describe, task_of
from retrieval_interp.tasks.task import TrainableTask

CONFIG, WEIGHTS, CIRCUIT, LOG = "config.json", "model.safetensors", "circuit.yaml", "log.jsonl"
STATE, CHECKPOINTS = "state.safetensors", "checkpoints"
LOCK = ".lock"  # held by the process that trains a run; stays when it ends
REPORT, ATTENTION, CARD = "report.json", "attention.csv", "README.md"
FORMAT = 1

# The fields that define the model; all other fields of HookedTransformerConfig keep their defaults.
ARCHITECTURE_FIELDS = (
    *("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "attn_only", "act_fn"),
    *("n_ctx", "d_vocab", "d_vocab_out", "normalization_type", "eps"),
)


def resume_command(run: Path) -> str:
    """Return the command that continues the training of a run."""
    return shlex.join(["retrieval-interp", "train", "--resume", "--out", str(run)])


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / CHECKPOINTS / f"step-{step:07d}.safetensors"


def checkpoints(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in ascending order.

    Raises:
        BadInput: a file name contains no step.
    """
    found = {}
    for path in sorted((run / CHECKPOINTS).glob("step-*.safetensors")):
        try:
            found[int(path.stem.removeprefix("step-"))] = path
        except ValueError:
            raise BadInput(f"{path}: expected a name like step-0000080.safetensors") from None
    return dict(sorted(found.items()))


def some_checkpoints(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step; at least one must exist.

    Raises:
        BadInput: the run has no checkpoints.
    """
    kept = checkpoints(run)
    if not kept:
        raise BadInput(f"{run}: holds no checkpoints ({CHECKPOINTS}/step-*.safetensors)")
    return kept


SIZE = "a whole number from 1 to 65536"  # the expected value of a size, for messages


def config_json(task: TrainableTask, cfg: hooked_transformer.HookedTransformerConfig, made: Mapping[str, Any]) -> str:
    """Return the config of a model directory as JSON: the task, the architecture, and how the model was made."""
    architecture = {field: getattr(cfg, field) for field in ARCHITECTURE_FIELDS}
    if cfg.attn_only:
        architecture["d_mlp"] = None  # TransformerLens sets it anyway
    document = {"format": FORMAT, "task": describe(task), "architecture": architecture, "made": dict(made)}
    return json.dumps(document, indent=2) + "\n"


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config of a model directory.

    Raises:
        BadInput: the folder or the file is missing, or the file is not a config.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such model directory")
    path = folder / CONFIG
    text = read_text(path, "the config of a model directory")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error})") from error
    sections = ("task", "architecture")
    if not isinstance(config, dict) or not all(isinstance(config.get(section), dict) for section in sections):
        raise BadInput(f"{path}: expected an object with the sections 'task' and 'architecture'")
    if not isinstance(config.get("made", {}), dict):
        raise BadInput(f"{path}: 'made' is {type(config['made']).__name__}; expected an object")
    if config.get("format") != FORMAT:
        raise BadInput(f"{path}: format is {config.get('format')!r}; this version reads {FORMAT}")
    return config


def task_from(config: Mapping[str, Any], path: Path) -> TrainableTask:
    """Return the task of a config that was read from ``path``."""
    try:
        return task_of(config["task"])
    except ValueError as error:
        raise BadInput(f"{path}: bad task ({error})") from error


def size_from(config: Mapping[str, Any], path: Path) -> tuple[int, int]:
    """Return the number of layers and the number of heads per layer of a config that was read from ``path``."""
    for field in ("n_layers", "n_heads"):
        if not _is_size(config["architecture"].get(field)):
            raise BadInput(f"{path}: {field} is {config['architecture'].get(field)!r}; expected {SIZE}")
    return config["architecture"]["n_layers"], config["architecture"]["n_heads"]


def architecture_from(
    config: Mapping[str, Any], task: TrainableTask, path: Path
) -> hooked_transformer.HookedTransformerConfig:
    """Return the TransformerLens config of a config that was read from ``path``, checked against its task."""
    section = config["architecture"]
    unknown = sorted(set(section) - set(ARCHITECTURE_FIELDS))
    if unknown:
        raise BadInput(f"{path}: unknown architecture field {unknown[0]!r}")
    expected = {"d_vocab": task.d_input, "d_vocab_out": task.d_output, "n_ctx": task.n_positions}
    for field, value in expected.items():
        if section.get(field) != value:
            raise BadInput(f"{path}: {field} is {section.get(field)!r}; the task needs {value}")
    attention_only = section.get("attn_only", False)
    expected_types: dict[str, tuple[str, bool]] = {
        field: (SIZE, _is_size(section.get(field)))
        for field in ("n_layers", "n_heads", "d_model", "d_head", *(() if attention_only is True else ("d_mlp",)))
    }
    expected_types["attn_only"] = ("true or false", isinstance(attention_only, bool))
    normalization = section.get("normalization_type", "LN")
    expected_types["normalization_type"] = ("LN, LNPre or null", normalization in ("LN", "LNPre", None))
    eps = section.get("eps", 1e-5)
    expected_types["eps"] = ("a number above 0", isinstance(eps, float) and 0 < eps < 1)
    for field, (wanted, right) in expected_types.items():
        if not right:
            raise BadInput(f"{path}: {field} is {section.get(field)!r}; expected {wanted}")
    from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

    activation = section.get("act_fn")
    if not attention_only and not (isinstance(activation, str) and activation in SUPPORTED_ACTIVATIONS):
        raise BadInput(f"{path}: act_fn is {activation!r}; expected one of {', '.join(SUPPORTED_ACTIVATIONS)}")
    try:
        return hooked_transformer.HookedTransformerConfig(**section, device="cpu", dtype=torch.float32)
    except Exception as error:  # TransformerLens can raise anything
        raise BadInput(f"{path}: bad architecture ({error})") from error


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**16
