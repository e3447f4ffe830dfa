"""A model directory: its files and its config.

It holds ``config.json`` and ``model.safetensors`` (HookedTransformer's keys), and optionally ``circuit.yaml`` and
``log.jsonl``. Training adds ``state.safetensors`` (to resume from) and ``checkpoints/step-*.safetensors``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from circuits.errors import BadInput
from circuits.model.transformer import hooked_transformer
from circuits.utils.files import read_text
from circuits.utils.lazy import Deferred, torch
from retrieval_interp.records import Size, first_error, record
from retrieval_interp.tasks.registry import describe, task_of
from retrieval_interp.tasks.task import TrainableTask

CONFIG, WEIGHTS, CIRCUIT, LOG = "config.json", "model.safetensors", "circuit.yaml", "log.jsonl"
STATE, CHECKPOINTS = "state.safetensors", "checkpoints"
LOCK = ".lock"  # held by the process that trains a run; stays when it ends
REPORT, ATTENTION, CARD = "report.json", "attention.csv", "README.md"

activation_functions = Deferred("transformer_lens.utilities.activation_functions")


@record
class Shape:
    """The fields that define a model; all other fields of HookedTransformerConfig keep their defaults."""

    n_layers: Size
    n_heads: Size
    d_model: Size
    d_head: Size
    n_ctx: int
    d_vocab: int
    d_vocab_out: int
    d_mlp: Size | None = None
    attn_only: bool = False
    act_fn: str | None = None
    normalization_type: Literal["LN", "LNPre"] | None = "LN"
    eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5


class Config(BaseModel):
    """``config.json``; ``made`` says how the model was made."""

    format: Literal[1]
    task: dict[str, Any]
    architecture: dict[str, Any]
    made: dict[str, Any] = {}


def resume_command(run: Path) -> str:
    """Return the command that continues the training of a run."""
    return shlex.join(["retrieval-interp", "train", "--resume", "--out", str(run)])


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return run / CHECKPOINTS / f"step-{step:07d}.safetensors"


def checkpoints(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, in ascending order; BadInput if a file name contains no step."""
    steps = {}
    for path in sorted((run / CHECKPOINTS).glob("step-*.safetensors")):
        try:
            steps[int(path.stem.removeprefix("step-"))] = path
        except ValueError:
            raise BadInput(f"{path}: expected a name like step-0000080.safetensors") from None
    return dict(sorted(steps.items()))


def some_checkpoints(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step; BadInput if there is none."""
    kept = checkpoints(run)
    if not kept:
        raise BadInput(f"{run}: holds no checkpoints ({CHECKPOINTS}/step-*.safetensors)")
    return kept


def config_json(task: TrainableTask, cfg: hooked_transformer.HookedTransformerConfig, made: Mapping[str, Any]) -> str:
    """Return the config of a model directory as JSON: the task, the architecture, and how the model was made."""
    architecture = {field.name: getattr(cfg, field.name) for field in fields(Shape)}
    if cfg.attn_only:
        architecture["d_mlp"] = None  # TransformerLens sets it anyway
    document = {"format": 1, "task": describe(task), "architecture": architecture, "made": dict(made)}
    return json.dumps(document, indent=2) + "\n"


def read_config(folder: Path) -> dict[str, Any]:
    """Return the config of a model directory; BadInput if the folder or file is missing, or the file is no config."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such model directory")
    path = folder / CONFIG
    if not path.exists() and (inside := ", ".join(sorted(str(one.parent) for one in folder.glob(f"*/{WEIGHTS}")))):
        raise BadInput(f"{folder}: is no model; expected one of those in it: {inside}")
    text = read_text(path, "the config of a model directory")
    try:
        return Config.model_validate_json(text).model_dump()
    except ValueError as error:
        raise BadInput(f"{path}: not the config of a model directory ({first_error(error)})") from error


def task_from(config: Mapping[str, Any], path: Path) -> TrainableTask:
    """Return the task of a config that was read from ``path``."""
    try:
        return task_of(config["task"])
    except ValueError as error:
        raise BadInput(f"{path}: bad task ({error})") from error


def shape_from(config: Mapping[str, Any], path: Path) -> Shape:
    """Return the shape of the model of a config that was read from ``path``."""
    try:
        return Shape(**config["architecture"])
    except (BadInput, TypeError) as error:
        raise BadInput(f"{path}: bad architecture ({error})") from error


def architecture_from(
    config: Mapping[str, Any], task: TrainableTask, path: Path
) -> hooked_transformer.HookedTransformerConfig:
    """Return the TransformerLens config of a config that was read from ``path``, checked against its task."""
    shape = shape_from(config, path)
    for field, value in {"d_vocab": task.d_input, "d_vocab_out": task.d_output, "n_ctx": task.n_positions}.items():
        if getattr(shape, field) != value:
            raise BadInput(f"{path}: {field} is {getattr(shape, field)!r}; the task needs {value}")
    if not shape.attn_only and shape.d_mlp is None:
        raise BadInput(f"{path}: d_mlp is missing; expected the width of the MLPs, or attn_only")
    if not shape.attn_only and shape.act_fn not in activation_functions.SUPPORTED_ACTIVATIONS:
        known = ", ".join(activation_functions.SUPPORTED_ACTIVATIONS)
        raise BadInput(f"{path}: act_fn is {shape.act_fn!r}; expected one of {known}")
    try:
        return hooked_transformer.HookedTransformerConfig(**asdict(shape), device="cpu", dtype=torch.float32)
    except Exception as error:  # TransformerLens can raise anything
        raise BadInput(f"{path}: bad architecture ({error})") from error
