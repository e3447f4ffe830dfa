"""Export of a finished run as a small model directory, in half precision if the loss stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.losses.loss import Loss
from circuits.utils.files import read_text, write_atomically
from circuits.utils.lazy import torch
from retrieval_interp.models.checkpoints import load_model, load_tensors, save_tensors
from retrieval_interp.models.model_dir import (
    CHECKPOINTS,
    CONFIG,
    LOG,
    WEIGHTS,
    checkpoint_path,
    config_json,
    read_config,
)
from retrieval_interp.training.training import train_command

EXAMPLES, SEED = 4096, 20_250_000
LARGEST_CHANGE = 1e-3  # relative change of the loss


def export(run: Path, to: Path, checkpoints: Sequence[int] = ()) -> dict[str, Any]:
    """Export the finished run in ``run`` to the model directory ``to``.

    The weights are in half precision if this changes the loss on 4,096 fresh examples by less than a thousandth.

    Args:
        run: the folder of the run.
        to: the model directory to write.
        checkpoints: the steps whose checkpoints are exported, too, in half precision.

    Returns:
        the precision, and the losses in float32 and float16, as written to the config.

    Raises:
        BadInput: the run is not finished or has no such checkpoint, or ``to`` already holds a model.
    """
    if (to / CONFIG).exists():
        raise BadInput(f"{to}: already holds a model")
    kept = [checkpoint_path(run, step) for step in checkpoints]
    for path in kept:
        if not path.exists():
            raise BadInput(f"{path}: no such checkpoint")
    model, task = load_model(run)
    from circuits.ablation.evaluation import evaluate

    config = read_config(run)
    made = dict(config.get("made", {}))
    examples = task.examples(EXAMPLES, SEED)

    def measure() -> Loss:
        return Loss.of(evaluate(model, task, examples, [Circuit()])[0], task.loss_components)

    full = measure()
    weights = model.state_dict()
    halves = _halved(weights)
    model.load_state_dict({name: half.to(weights[name].dtype) for name, half in halves.items()})
    half = measure()
    small = abs(half.mean - full.mean) < LARGEST_CHANGE * full.mean
    measured = {
        "precision": "float16" if small else "float32",
        "examples": EXAMPLES,
        "evaluation_seed": SEED,
        "loss_float32": full.to_json(),
        "loss_float16": half.to_json(),
    }
    if "preset" in made:
        made["command"] = train_command(made["preset"], config, run / CONFIG)
    log = read_text(run / LOG, "the log of a run")
    save_tensors(to / WEIGHTS, halves if small else weights)
    for path in kept:
        save_tensors(to / CHECKPOINTS / path.name, _halved(load_tensors(path)[0]))
    write_atomically(to / LOG, log)
    write_atomically(to / CONFIG, config_json(task, model.cfg, {**made, "exported": measured}))
    return measured


def _halved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
