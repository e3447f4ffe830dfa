"""The metrics of one run at each of its checkpoints, or what its log and its table of attention hold of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float

from circuits.circuit import AttentionPath, Head
from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.experiments.shifts import check_shiftable
from retrieval_interp.mirage.answer_metrics import (
    CHAIN,
    NEAREST,
    SQUARED,
    WEIGHT,
    answer_metrics,
    symbol_slots,
)
from retrieval_interp.models import library
from retrieval_interp.models.model_dir import ATTENTION, LOG, WEIGHTS, checkpoints, read_config
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.training.curves import EMERGED, Curve, read_attention, read_losses

EXAMPLES, ATTENTION_EXAMPLES = 512, 128  # fresh examples for the metrics; of these, for the attention
AT_ONCE = 16  # examples in one forward pass; on a CPU, 512 at once took a wide model of 24 layers eight times as long
AVERAGED = (SQUARED, WEIGHT, NEAREST)  # metrics that have no value for a whole chain


@dataclass(frozen=True)
class RunCurves:
    """The metrics of one run by step.

    Attributes:
        name: the name of the run.
        task: the task.
        n_layers: the number of layers.
        seed: the seed of the run; None if its config does not name one.
        recipe: what two runs that differ in layers and seed alone have in common.
        output: the metrics of the output, by symbol (or ``CHAIN``) and name of the metric.
        by_slot: the same, by symbol, metric and slot of the pair that holds the symbol; empty for a stored table.
        attention: the average attention along every path that has emerged at the end, on the slots of its target on
            which it has, by the path's name.
        source: the source of the curves, in words.
    """

    name: str
    task: RetrievalTask
    n_layers: int
    seed: int | None
    recipe: Mapping[str, Any]
    output: Mapping[tuple[str, str], Curve]
    by_slot: Mapping[tuple[str, str, int], Curve]
    attention: Mapping[str, Curve]
    source: str

    @property
    def over_training(self) -> bool:
        """Whether there are two steps or more."""
        return all(len(curve) > 1 for curve in self.output.values())


def metric_curves(folder: Path, name: str, n_examples: int, seed: int, progress: Callable[[float], None]) -> RunCurves:
    """Measure a run: at all of its checkpoints; or else read its log and its table of attention; or else its weights.

    Args:
        folder: the folder of the run, a model directory.
        name: the name of the run.
        n_examples: the number of fresh examples.
        seed: their seed.
        progress: is called with the finished share, 0 to 1.

    Raises:
        BadInput: the folder is no run of the retrieval problem, or holds none of these, or a file is damaged.
    """
    task = check_shiftable(library.own_task(folder), name)
    config = read_config(folder)
    n_layers, _ = library.own_size(folder)
    made = config.get("made", {})
    recipe = {
        "task": config["task"],
        "architecture": {field: value for field, value in config["architecture"].items() if field != "n_layers"},
        "recipe": {
            field: value for field, value in made.get("recipe", {}).items() if field != "checkpoint_every"
        },
    }  # fmt: skip
    kept = len(checkpoints(folder))
    if kept < 2 and (folder / LOG).exists() and (folder / ATTENTION).exists():
        curves = stored(folder, task)
        source = f"{LOG} (training losses) and {ATTENTION}"
    elif kept > 1 or (folder / WEIGHTS).exists():
        curves = through_checkpoints(folder, task, n_examples, seed, progress)
        source = f"{kept} checkpoints" if kept > 1 else "the last weights"
        source += f", {n_examples} fresh examples"
    else:
        raise BadInput(f"{name}: expected a run with two checkpoints or more, with {LOG} and {ATTENTION}, or {WEIGHTS}")
    return RunCurves(name, task, n_layers, made.get("seed"), recipe, *curves, source)


Curves = tuple[dict[tuple[str, str], Curve], dict[tuple[str, str, int], Curve], dict[str, Curve]]


def stored(folder: Path, task: RetrievalTask) -> Curves:
    """Return what a log and a table of attention hold: squared errors in training, and attention over all slots."""
    losses, attention = read_losses(folder / LOG), read_attention(folder / ATTENTION)
    output = {(symbol, SQUARED): losses[symbol] for symbol in task.loss_components if symbol in losses}
    if len(output) < len(task.loss_components):
        raise BadInput(f"{folder / LOG}: holds the losses of {', '.join(losses)}; expected {task.asked}")
    emerged = {path: curve for path, curve in attention.items() if _last(curve) > EMERGED and not _to_itself(path)}
    return output, {}, emerged


def _last(curve: Curve) -> float:
    return [*curve.values()][-1]


def _to_itself(path: str) -> bool:
    source, target = path.split(" ", 1)[1].split(" -> ")
    return source == target


def through_checkpoints(
    folder: Path, task: RetrievalTask, n_examples: int, seed: int, progress: Callable[[float], None]
) -> Curves:
    """Measure all metrics at every checkpoint, or with the last weights if there are no two checkpoints."""
    kept = checkpoints(folder)
    models = library.through_training(folder) if len(kept) > 1 else iter([(0, library.load(folder).model)])
    examples = task.examples(n_examples, seed)
    few = examples.take(slice(ATTENTION_EXAMPLES))
    slots = symbol_slots(task, examples)
    output: dict[tuple[str, str], dict[int, float]] = {}
    by_slot: dict[tuple[str, str, int], dict[int, float]] = {}
    attention: dict[int, torch.Tensor] = {}
    for place, (step, model) in enumerate(models, start=1):
        measured, attention[step] = at_once(model, task, examples, few)
        for metric, values in measured.items():
            for column, symbol in enumerate(task.loss_components):
                of_symbol = values[:, :, column]
                output.setdefault((symbol, metric), {})[step] = of_symbol.mean().item()
                for slot in range(task.n_chains):
                    own = of_symbol[slots[:, :, column] == slot].mean().item()
                    by_slot.setdefault((symbol, metric, slot), {})[step] = own
            if metric not in AVERAGED:
                output.setdefault((CHAIN, metric), {})[step] = values.amin(dim=-1).mean().item()
        progress(place / max(1, len(kept)))
    return {**output}, {**by_slot}, emerged_paths(attention, few)


def at_once(
    model: Transformer, task: RetrievalTask, examples: Examples, few: Examples
) -> tuple[
    dict[str, Float[torch.Tensor, "batch chain component"]],
    Float[torch.Tensor, "layer head query_role key_role label"],
]:
    """Return the metrics of a model on some examples, and its attention by slot of the target on a few."""
    from circuits.attention import attention_by_group

    with torch.no_grad():
        outputs = torch.cat([model(inputs) for inputs in examples.inputs.split(AT_ONCE)])
        measured = answer_metrics(task, outputs, examples)
        return measured, attention_by_group(model, few, "slot").cpu()


def emerged_paths(
    attention: Mapping[int, Float[torch.Tensor, "layer head query_role key_role label"]], examples: Examples
) -> dict[str, Curve]:
    """Return the attention by step along the paths that have emerged at the last step, on the slots where they have."""
    roles = examples.roles.names
    last = [*attention.values()][-1]
    found: dict[str, Curve] = {}
    for layer, head, source, target in (last > EMERGED).any(dim=-1).nonzero().tolist():
        if source == target:
            continue
        slots = [slot for slot, there in enumerate(last[layer, head, source, target].tolist()) if there > EMERGED]
        path = str(AttentionPath(Head(layer, head), roles[source], roles[target]))
        of = "" if len(slots) == last.shape[-1] else f" [slot {', '.join(map(str, slots))}]"
        found[path + of] = {
            step: then[layer, head, source, target, slots].mean().item() for step, then in attention.items()
        }
    return found
