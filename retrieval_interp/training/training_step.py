"""One step of training: the batch it sees, its learning rate, its device, and what it does to the weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.problem import Examples
from circuits.utils.lazy import torch, transformer_lens
from retrieval_interp.models.presets import Recipe
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import RawBatch, Task
from retrieval_interp.tasks.vectors import VectorBatch


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, constant, then a cosine to zero over the last ``decay`` share of the steps."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    start = recipe.steps * (1 - recipe.decay)
    gone = max(0.0, (step - start) / (recipe.steps - start)) if recipe.decay else 0.0
    return recipe.lr * warm * 0.5 * (1 + math.cos(math.pi * gone))


def largest_norm(recipe: Recipe) -> float:
    """The norm at which a recipe clips gradients; infinite where it does not."""
    return math.inf if recipe.max_grad_norm is None else recipe.max_grad_norm


def adamw(trained: Iterable[tuple[str, torch.Tensor]], recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over named weights, with decoupled weight decay on matrices, none on biases and norms."""
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for name, weight in trained:
        groups[name.rsplit(".", 1)[-1].startswith("W_")].append(weight)
    decays = {True: recipe.weight_decay, False: 0.0}
    each = [{"params": some, "weight_decay": decays[matrices]} for matrices, some in groups.items()]
    return torch.optim.AdamW(each, lr=recipe.lr, fused=True)


DEVICES = ("auto", "cuda", "mps", "cpu")


def check_device_name(name: str) -> None:
    """Refuse what is the name of no device; whether it exists is for the machine that uses it to say.

    Raises:
        BadInput: it is none.
    """
    if name not in DEVICES:
        raise BadInput(f"device {name!r} is not known; expected one of {', '.join(DEVICES)}")


def choose_device(name: str) -> torch.device:
    """``auto`` takes CUDA, then MPS, then the CPU.

    Raises:
        BadInput: the device does not exist here, or anywhere.
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
    """Whether the matrix products of a recipe are in bfloat16 on a device."""
    return has_fast_bfloat16(device) if recipe.precision == "auto" else recipe.precision == "bfloat16"


def compiled(forward: Any, device: torch.device, tried: Callable[[Any], None]) -> Any:
    """A compiled forward pass; where no compiler is found, or ``tried`` fails, it is said so, and it stays as it is."""
    torch.compiler.reset()  # PyTorch gives up after a few models with the same code; those before are done with
    decompose = "cpp.use_decompose_tanh"  # which halves the time of GELU on the CPU; the error stays at 1e-7
    try:
        known = device.type == "cpu" and decompose in torch._inductor.list_options()  # older versions do not know it
        fast = torch.compile(forward, dynamic=False, options={decompose: True} if known else {})
        tried(fast)
    except Exception as error:  # whatever the compiler raises, training can go on without it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        print(f"torch.compile does not work here ({reason}); training without it", file=sys.stderr)
        return forward
    return fast


@dataclass
class TrainingStep:
    """One optimiser step of a model on a batch, in the precision of its recipe, compiled where that works."""

    model: transformer_lens.HookedTransformer
    task: Task
    recipe: Recipe

    def __post_init__(self) -> None:
        from retrieval_interp.training.training_pass import (
            training_pass,  # with TransformerLens, which a schedule does without
        )

        self.device = next(self.model.parameters()).device
        self.optimizer = adamw(((n, p) for n, p in self.model.named_parameters() if p.requires_grad), self.recipe)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.autocast = in_bfloat16(self.recipe, self.device)
        self.forward: Any = partial(training_pass, self.model)

    def compile(self) -> None:
        """Compile the forward and the backward pass, where a compiler is found; else say so and go on without."""
        few = self.task.assemble(self.task.training_set(self.recipe.batch, 0).to(self.device)).inputs

        def tried(forward: Any) -> None:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                forward(few).float().sum().backward()

        self.forward = compiled(self.forward, self.device, tried)
        self.optimizer.zero_grad()

    def losses(self, examples: Examples) -> torch.Tensor:
        """Training losses averaged over a batch, ``[component]``."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self.forward(examples.inputs)
        return self.task.training_losses(outputs.float(), examples).mean(dim=0)

    def validate(self, examples: Examples) -> torch.Tensor:
        """The task's losses on examples that are not trained on, averaged over them, ``[component]``."""
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self.model(examples.inputs)
        return self.task.losses(outputs.float(), examples).mean(dim=0)

    def __call__(self, examples: Examples, lr: float) -> torch.Tensor:
        """Take one step; returns the training losses before it, ``[component]``."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        losses = self.losses(examples)
        losses.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, largest_norm(self.recipe))
        self.optimizer.step()
        # A gradient that is no number spoils the weights only now: let it show in what is returned.
        return torch.where(norm.isfinite(), losses.detach(), torch.nan)


def train_steps(
    take_step: TrainingStep, seed: int, first: int = 0
) -> Iterator[tuple[int, Float[torch.Tensor, " component"], bool]]:
    """Train from step ``first`` to the end of the recipe.

    Yields:
        after every step its number, from 1; the loss components before it, averaged over the batch; and whether the
        task had all of its hops by then (one that does not grow always has).
    """
    batches = Batches(take_step.task, take_step.recipe, seed, take_step.device)
    for step in range(first, take_step.recipe.steps):
        losses = take_step(batches[step], learning_rate(take_step.recipe, step))
        yield step + 1, losses, batches.task_at(max(0, step - 19)) == take_step.task


class Batches:
    """The batch of every step: each epoch visits the whole training set in an order of its own."""

    def __init__(self, task: Task, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.task, self.recipe, self.seed, self.device = task, recipe, seed, device
        self.training_set = task.training_set(recipe.training_examples, seed).to(device)
        self._order = (-1, torch.empty(0, dtype=torch.long))

    def __getitem__(self, step: int) -> Examples:
        """The examples of a step."""
        return self.task_at(step).assemble(self.draws(step))

    def task_at(self, step: int) -> Task:
        """What is trained on in a step: the task itself, or where it grows the same with fewer hops."""
        if self.recipe.growing and isinstance(self.task, RetrievalTask):
            return self.task.shortened(self._hops(self.task, step))
        return self.task

    def draws(self, step: int) -> RawBatch:
        """What chance has decided of the examples of a step."""
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
        """One more after every equal share of the first half of the steps."""
        return min(task.n_steps, 1 + step * (task.n_steps - 1) // max(1, self.recipe.steps // 2))
