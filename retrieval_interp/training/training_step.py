"""One training step: its batch, learning rate and device, and the update of the weights."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.task import Examples
from circuits.utils.lazy import torch
from retrieval_interp.models.presets import Recipe
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import RawBatch, TrainableTask
from retrieval_interp.tasks.vectors import VectorBatch


def learning_rate(recipe: Recipe, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, constant, then a cosine to zero over the share ``decay``."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    start = recipe.steps * (1 - recipe.decay)
    gone = max(0.0, (step - start) / (recipe.steps - start)) if recipe.decay else 0.0
    return recipe.lr * warm * 0.5 * (1 + math.cos(math.pi * gone))


def largest_norm(recipe: Recipe) -> float:
    """Return the norm at which a recipe clips gradients; infinite without clipping."""
    return math.inf if recipe.max_grad_norm is None else recipe.max_grad_norm


def adamw(trained: Iterable[tuple[str, torch.Tensor]], recipe: Recipe) -> torch.optim.AdamW:
    """Return AdamW over named weights, with weight decay on matrices, but not on biases and norms."""
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for name, weight in trained:
        groups[name.rsplit(".", 1)[-1].startswith("W_")].append(weight)
    decays = {True: recipe.weight_decay, False: 0.0}
    each = [{"params": some, "weight_decay": decays[matrices]} for matrices, some in groups.items()]
    return torch.optim.AdamW(each, lr=recipe.lr, betas=(recipe.betas[0], recipe.betas[1]), fused=True)


DEVICES = ("auto", "cuda", "mps", "cpu")


def check_device_name(name: str) -> None:
    """Check the name of a device, but not whether this machine has the device.

    Raises:
        BadInput: the name is unknown.
    """
    if name not in DEVICES:
        raise BadInput(f"device {name!r} is not known; expected one of {', '.join(DEVICES)}")


def choose_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` tries CUDA, then MPS, then the CPU.

    Raises:
        BadInput: the name is unknown, or this machine does not have the device.
    """
    check_device_name(name)
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, there in usable.items() if there))
    if not usable.get(name, False):
        there = ", ".join(device for device, there in usable.items() if there)
        raise BadInput(f"device {name!r} is not usable here; expected auto or one of {there}")
    return torch.device(name)


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the processor multiplies bfloat16 matrices natively."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False


def in_bfloat16(recipe: Recipe, device: torch.device) -> bool:
    """Whether a recipe uses bfloat16 matrix products on a device."""
    return has_fast_bfloat16(device) if recipe.precision == "auto" else recipe.precision == "bfloat16"


def compiled(forward: Any, device: torch.device, tried: Callable[[Any], None]) -> Any:
    """Compile a forward pass; if this or ``tried`` fails, print a warning and return the pass uncompiled."""
    torch.compiler.reset()  # PyTorch stops compiling after a few models with the same code; earlier ones are done
    decompose = "cpp.use_decompose_tanh"  # halves the time of GELU on the CPU, with an error of 1e-7
    try:
        known = device.type == "cpu" and decompose in torch._inductor.list_options()  # older versions lack it
        fast = torch.compile(forward, dynamic=False, options={decompose: True} if known else {})
        tried(fast)
    except Exception as error:  # the compiler can raise anything; training works without it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        print(f"torch.compile does not work here ({reason}); training without it", file=sys.stderr)
        return forward
    return fast


def keep_freed_memory(kept: bool = True) -> None:
    """Make this process keep the memory that one step frees for the next step. Only glibc has the setting.

    By default glibc returns large tensors to the system, which then hands out and clears every page anew. This takes a
    tenth to a fifth of the time of a step, and more if other processes are busy (``benchmarks/training.py``).

    Args:
        kept: False restores the default.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(-4, 0 if kept else 2**16)  # M_MMAP_MAX: the number of tensors that may be mapped on their own
        mallopt(-1, 2**31 - 1 if kept else 2**17)  # M_TRIM_THRESHOLD: the free bytes that may stay at the heap's end


@dataclass
class TrainingStep:
    """One optimiser step of a model on a batch, in the precision of its recipe.

    Attributes:
        model: the model that is trained.
        task: the task.
        recipe: the hyperparameters of training.
    """

    model: Transformer
    task: TrainableTask
    recipe: Recipe

    def __post_init__(self) -> None:
        from retrieval_interp.training.training_pass import (
            training_pass,  # imports TransformerLens, which a learning rate does not need
        )

        keep_freed_memory()
        self.device = next(self.model.parameters()).device
        self.optimizer = adamw(((n, p) for n, p in self.model.named_parameters() if p.requires_grad), self.recipe)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.autocast = in_bfloat16(self.recipe, self.device)
        self.forward: Any = partial(training_pass, self.model, positions=self.task.trained_positions)

    def compile(self) -> None:
        """Compile the forward and the backward pass; without a working compiler, print a warning and do not compile."""
        few = self.task.assemble(self.task.training_set(self.recipe.batch, 0).to(self.device)).inputs

        def tried(forward: Any) -> None:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                forward(few).float().sum().backward()

        self.forward = compiled(self.forward, self.device, tried)
        self.optimizer.zero_grad()

    def losses(self, examples: Examples) -> torch.Tensor:
        """Return the training losses averaged over a batch, ``[component]``."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self.forward(examples.inputs)
        return self.task.training_losses(outputs.float(), examples).mean(dim=0)

    def validate(self, examples: Examples) -> torch.Tensor:
        """Return the task's losses averaged over validation examples, ``[component]``."""
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self.model(examples.inputs)
        return self.task.losses(outputs.float(), examples).mean(dim=0)

    def __call__(self, examples: Examples, lr: float) -> torch.Tensor:
        """Take one step, and return the training losses before it, ``[component]``."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        losses = self.losses(examples)
        losses.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, largest_norm(self.recipe))
        self.optimizer.step()
        # A NaN gradient has just damaged the weights: return NaN, so that the caller notices.
        return torch.where(norm.isfinite(), losses.detach(), torch.nan)


def train_steps(
    take_step: TrainingStep, seed: int, first: int = 0
) -> Iterator[tuple[int, Float[torch.Tensor, " component"], bool]]:
    """Train from step ``first`` to the end of the recipe.

    Yields:
        after every step: its number, from 1; the training losses before it, averaged over the batch; and whether the
        task has had all of its retrieval steps for the last 20 training steps (always true if it does not grow).
    """
    batches = Batches(take_step.task, take_step.recipe, seed, take_step.device)
    for step in range(first, take_step.recipe.steps):
        losses = take_step(batches[step], learning_rate(take_step.recipe, step))
        yield step + 1, losses, batches.task_at(max(0, step - 19)) == take_step.task


class Batches:
    """The batch of every step: each epoch visits the whole training set in a new order."""

    def __init__(self, task: TrainableTask, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.task, self.recipe, self.seed, self.device = task, recipe, seed, device
        self.training_set = task.training_set(recipe.training_examples, seed).to(device)
        self._order = (-1, torch.empty(0, dtype=torch.long))

    def __getitem__(self, step: int) -> Examples:
        """Return the examples of a step."""
        return self.task_at(step).assemble(self.draws(step))

    def task_at(self, step: int) -> TrainableTask:
        """Return the task of a step: the task itself, or with fewer retrieval steps if the recipe is growing."""
        if self.recipe.growing and isinstance(self.task, RetrievalTask):
            return self.task.shortened(self._hops(self.task, step))
        return self.task

    def draws(self, step: int) -> RawBatch | Examples:
        """Return the raw batch of a step."""
        batch = self.recipe.batch
        epoch, place = divmod(step, self.recipe.training_examples // batch)
        if self._order[0] != epoch:
            order = RngStream.BATCH_ORDER.generator(self.seed, epoch).permutation(self.recipe.training_examples)
            self._order = epoch, torch.from_numpy(order).to(self.device)
        drawn = self.training_set.take(self._order[1][place * batch : (place + 1) * batch])
        if self.recipe.growing and isinstance(self.task, RetrievalTask) and isinstance(drawn, VectorBatch):
            return self.task.first_steps(drawn, self._hops(self.task, step))
        return drawn

    def _hops(self, task: RetrievalTask, step: int) -> int:
        """Return the number of retrieval steps: one more after every equal interval in the first half of training."""
        return min(task.n_steps, 1 + step * (task.n_steps - 1) // max(1, self.recipe.steps // 2))
