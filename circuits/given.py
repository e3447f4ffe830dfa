"""What a task gives, checked where it enters: its examples, and its losses."""

from __future__ import annotations

import hashlib
import warnings
import weakref
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress

from jaxtyping import Bool, Float

from circuits.errors import BadInput, whole
from circuits.model.state import learned
from circuits.model.transformer import Transformer, run, spread
from circuits.split import Part
from circuits.task import Examples, Task, WithInstances
from circuits.utils.lazy import torch

FEW = 8  # examples on which the losses are compared with those of complete outputs
SEEDED, OTHER_SEED = 32, 2**31 - 1  # examples of each seed that are compared, and a seed that nobody takes
SMALL = 16  # items of a list or mapping of a task up to which its content is compared
MOST_EXAMPLES = 10**7  # the losses of a small circuit on this many examples take a GiB


def number_of_examples(n: object) -> int:
    """Return a number of examples; BadInput if it is too small for a standard error, or too large for the memory."""
    return whole("the number of examples", n, 2, MOST_EXAMPLES)


def examples_of(task: Task, n: int, seed: int, device: torch.device | str = "cpu") -> Examples:
    """Return ``n`` examples of a task, whose seeds are checked the first time; it warns of a small data set.

    Raises:
        BadInput: the task gives something else, fewer or more examples, or lacks one of its roles; it gives the same
            examples for every seed, or others for the same one.
    """
    if isinstance(task, Part):
        return _drawn(task, n, seed).to(device)
    others, examples = _of_another_seed(task, n), _drawn(task, n, seed)
    there = {*_rows(examples)} if len(examples) >= len(others) else set()
    shared = sum(one in there for one in others)
    if 2 * shared >= len(others):
        warnings.warn(
            f"{n} examples were asked for, {len(there)} are different, and of {len(others)} with another seed {shared} "
            "are among them: averages, choices and tests share them, and standard errors say too little",
            stacklevel=2,
        )
    return examples.to(device)


def stream_seed(seed: int, stream: str) -> int:
    """Return a seed derived from another seed and a name; its random numbers are independent of the other seed's;
    BadInput if the seed is not a whole number, or is out of range.
    """
    seed = whole("the seed", seed, 0, 2**63 - 1)
    return int(hashlib.sha256(f"{seed}, {stream}".encode()).hexdigest()[:8], 16)


def _drawn(task: Task, n: int, seed: int) -> Examples:
    n, seed = whole("the number of examples", n, 1), whole("the seed", seed, 0)
    examples = task.examples(n, seed)
    if not isinstance(examples, Examples):
        raise BadInput(f"the task's examples: got {type(examples).__name__}; expected circuits.Examples")
    if len(examples) != n:
        raise BadInput(f"the task gives {len(examples)} examples where {n} were asked for")
    for role in (*task.roles, *task.output_roles):
        examples.roles[role]  # raises if there is none
    return examples


# Tasks whose seeds were checked, as they were then, and the examples of another seed. A task may hold a model: only a
# weak reference lets both go.
_seeded: dict[Hashable, tuple[weakref.ref[Task], list[bytes]]] = {}


def _as_it_is(task: Task) -> Hashable:
    """Return what a task is at the moment: its functions and attributes, and what small lists and mappings hold."""

    def kept(value: object) -> Hashable:
        if isinstance(value, Mapping | list | tuple) and len(value) <= SMALL:
            return tuple(map(kept, value.items() if isinstance(value, Mapping) else value))
        return value if isinstance(value, bool | int | float | str) else id(value)

    functions = (id(getattr(method, "__func__", method)) for method in (task.examples, task.losses))
    attributes = ((name, kept(value)) for name, value in getattr(task, "__dict__", {}).items())
    return id(task), *functions, tuple(task.output_roles), *attributes


def _of_another_seed(task: Task, n: int) -> list[bytes]:
    """Return a few examples of another seed; the task's seeds are checked the first time."""
    key = _as_it_is(task)
    if key in _seeded and _seeded[key][0]() is task:
        return _seeded[key][1]
    few = max(FEW, min(whole("the number of examples", n, 1), SEEDED))
    one, again, other = (_rows(_drawn(task, few, seed)) for seed in (0, 0, OTHER_SEED))
    if one != again:
        raise BadInput("the task gives other examples for the same seed; expected the same ones")
    if one == other:
        raise BadInput("the task gives the same examples for every seed; expected fresh ones for each seed")
    with suppress(TypeError):
        _seeded[key] = weakref.ref(task, lambda gone: _seeded.pop(key, None)), other
    return other


def _rows(examples: Examples) -> list[bytes]:
    """Return inputs and targets of every example as bytes, to tell which examples are the same."""
    parts = [part.reshape(len(examples), -1).double().cpu() for part in (examples.inputs, examples.targets)]
    return [row.tobytes() for row in torch.cat(parts, dim=1).numpy()]


def losses_of(
    task: Task, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples, finite: bool = True
) -> Float[torch.Tensor, "batch component"]:
    """Return the losses of a task on a model's outputs, at least in single precision.

    Raises:
        BadInput: they are no tensor of one loss for each example and component, or (``finite``) not all are finite.
    """
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    losses = task.losses(outputs, examples)
    expected, is_tensor = (len(examples), len(task.loss_components)), isinstance(losses, torch.Tensor)
    if not is_tensor or losses.shape != expected or losses.is_complex():
        got = f"{losses.dtype} of shape {[*losses.shape]}" if is_tensor else type(losses).__name__
        raise BadInput(f"the task's losses: got {got}; expected a real tensor {[*expected]}, by example and component")
    if finite and not losses.isfinite().all():
        whose = "task's losses" if outputs.isfinite().all() else "model's outputs"
        raise BadInput(f"the {whose} are NaN or infinite; expected finite numbers")
    return losses.to(torch.promote_types(losses.dtype, torch.float32))


def read_positions(task: Task, examples: Examples) -> Bool[torch.Tensor, "example pos"]:
    """Return the positions whose outputs the losses of a task may read."""
    read = torch.zeros(examples.inputs.shape[:2], dtype=torch.bool, device=examples.inputs.device)
    for role in task.output_roles:
        read.scatter_(1, examples.roles[role], True)
    return read


def check_reading(model: Transformer, task: Task, examples: Examples) -> None:
    """Check once, on a few examples, that the losses do not depend on outputs at other positions than output roles.

    The outputs elsewhere are replaced with others: noise, the next token, this token, and the answer. A loss that ranks
    or compares would not notice NaN.

    Raises:
        BadInput: the losses of complete outputs are not finite, or differ from those with other outputs elsewhere.
    """
    key = "reading", _as_it_is(task)
    if (known := learned(model).get(key)) and known() is task:
        return
    few = examples.take(spread(len(examples), FEW, examples.inputs.shape[1], model.cfg))
    with torch.no_grad():
        outputs, read = run(model, few), read_positions(task, few)
    complete = losses_of(task, outputs.clone(), few)
    if not torch.equal(losses_of(task, outputs.clone(), few), complete):
        raise BadInput("the task's losses of the same outputs differ from call to call; expected the same")
    for others in _others(outputs, few):
        changed = losses_of(task, torch.where(read[..., None], outputs, others), few, finite=False)
        if not torch.allclose(changed, complete):
            raise BadInput(f"the losses read more than the outputs at the roles {', '.join(task.output_roles)}")
    exact = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    each = task.instance_losses(exact, few) if isinstance(task, WithInstances) else None
    if each is not None and each.ndim == 3 and each.shape[2] == complete.shape[1]:
        average = each.nanmean(dim=1)
        asked = complete.to(average).masked_fill(average.isnan(), torch.nan)
        if not torch.allclose(average, asked, 1e-3, 1e-4, equal_nan=True):
            raise BadInput("the task's instance losses do not average to its losses; expected this for every example")
    half = slice(0, -(-len(few) // 2))
    if not torch.allclose(losses_of(task, outputs[half].clone(), few.take(half)), complete[half], atol=1e-6):
        raise BadInput("the task's losses of an example depend on the other examples; expected each example by itself")
    if not outputs.isfinite().all():
        return  # nothing could be compared
    with suppress(TypeError):  # a task may hold the model: only a weak reference lets both go
        learned(model)[key] = weakref.ref(task)


def _others(
    outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
) -> Iterator[Float[torch.Tensor, "batch pos d_out"]]:
    """Yield outputs that have nothing to do with the model's, and such that are often right.

    Tokens that are no outputs, such as -100 for "not asked", are taken for the nearest that are.
    """
    scale = float(outputs.abs().amax()) + 1
    generator = torch.Generator(outputs.device).manual_seed(0)
    yield torch.randn(outputs.shape, generator=generator, device=outputs.device).to(outputs) * scale
    answers = examples.targets.reshape(len(outputs), -1).T[:FEW]
    for tokens in (examples.inputs.roll(-1, 1), examples.inputs, *(one[:, None] for one in answers), examples.targets):
        if tokens.ndim == 2 and not tokens.is_floating_point() and tokens.shape[1] in (1, outputs.shape[1]):
            at = tokens.expand(outputs.shape[:2]).long().clamp(0, outputs.shape[-1] - 1)
            yield outputs.new_zeros(outputs.shape).scatter_(2, at[..., None], scale)
