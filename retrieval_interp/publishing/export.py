"""Export of a finished run as a small model directory, in half precision if the loss stays the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.losses.loss import Loss
from circuits.utils.files import read_text, write_atomically
from circuits.utils.lazy import Deferred, torch
from retrieval_interp.models import model_dir
from retrieval_interp.models.checkpoints import load_model, load_tensors, save_tensors
from retrieval_interp.publishing.card import model_card
from retrieval_interp.training.curves import read_losses
from retrieval_interp.training.training import train_command

EXAMPLES, SEED = 4096, 20_250_000
LARGEST_CHANGE = 1e-3  # relative change of the loss

evaluation = Deferred("circuits.ablation")


def export(run: Path, to: Path, checkpoints: Sequence[int] = ()) -> dict[str, Any]:
    """Export the finished run in ``run`` to the model directory ``to``, with a card and the checkpoints of some steps.

    The weights are in half precision if this changes the loss on 4,096 fresh examples by less than a thousandth;
    checkpoints always are. BadInput if the run is not finished, a checkpoint is missing, or ``to`` holds a model.

    Returns:
        the precision, the step, and the losses in float32 and float16, as written to the config.
    """
    if (to / model_dir.CONFIG).exists():
        raise BadInput(f"{to}: already holds a model")
    kept = [model_dir.checkpoint_path(run, step) for step in checkpoints]
    if missing := [path for path in kept if not path.exists()]:
        raise BadInput(f"{missing[0]}: no such checkpoint")
    model, task = load_model(run)
    config, whole = model_dir.read_config(run), {name: value.clone() for name, value in model.state_dict().items()}
    halves, losses = _halved(whole), []
    for weights in (whole, halves):
        model.load_state_dict(weights)
        measured = evaluation.evaluate(model, task, task.examples(EXAMPLES, SEED), [Circuit()])[0]
        losses.append(Loss.of(measured, task.loss_components))
    small = abs(losses[1].mean - losses[0].mean) < LARGEST_CHANGE * losses[0].mean
    log, steps = read_text(run / model_dir.LOG, "the log of a run"), read_losses(run / model_dir.LOG)["loss"]
    exported: dict[str, Any] = {"precision": "float16" if small else "float32", "examples": EXAMPLES}
    exported |= {"evaluation_seed": SEED, "step": max(steps)}
    exported |= {f"loss_{name}": asdict(loss) for name, loss in zip(("float32", "float16"), losses, strict=True)}
    made = {**config["made"], "exported": exported}
    if "preset" in made:
        made["command"] = train_command(config, run / model_dir.CONFIG)
    save_tensors(to / model_dir.WEIGHTS, halves if small else whole)
    for path in kept:
        save_tensors(to / model_dir.CHECKPOINTS / path.name, _halved(load_tensors(path)[0]))
    write_atomically(to / model_dir.LOG, log)
    write_atomically(to / model_dir.CONFIG, model_dir.config_json(task, model.cfg, made))
    write_atomically(to / model_dir.CARD, model_card(to, str(to)))
    return exported


def _halved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
