"""One training step: its batch, learning rate and device, and the update of the weights."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.task import Examples
from circuits.utils.lazy import Deferred, torch
from retrieval_interp.models.presets import Recipe
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.task import TrainableTask

passing = Deferred("retrieval_interp.training.training_pass")  # imports TransformerLens
DEVICES = ("auto", "cuda", "mps", "cpu")


def check_device_name(name: str) -> None:
    """Raise BadInput if the name of a device is unknown; whether this machine has the device is not checked."""
    if name not in DEVICES:
        raise BadInput(f"device {name!r} is not known; expected one of {', '.join(DEVICES)}")


def choose_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` tries CUDA, then MPS, then the CPU. BadInput if this machine lacks it."""
    check_device_name(name)
    usable = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    there = [device for device, is_there in usable.items() if is_there]
    if name not in ("auto", *there):
        raise BadInput(f"device {name!r} is not usable here; expected auto or one of {', '.join(there)}")
    return torch.device(there[0] if name == "auto" else name)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, constant, then a cosine to zero over the share ``decay``."""
    warm = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    start = recipe.steps * (1 - recipe.decay)
    gone = max(0.0, (step - start) / (recipe.steps - start)) if recipe.decay else 0.0
    return recipe.lr * warm * 0.5 * (1 + math.cos(math.pi * gone))


def in_bfloat16(recipe: Recipe, device: torch.device) -> bool:
    """Whether a recipe uses bfloat16 matrix products on a device: as it says, or if the processor has them."""
    if recipe.precision != "auto":
        return recipe.precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def keep_freed_memory(kept: bool = True) -> None:
    """Make this process keep the memory that one step frees for the next step, or not. Only glibc has the setting.

    By default glibc returns large tensors to the system, which then hands out and clears every page anew. This takes a
    tenth to a fifth of the time of a step, and more if other processes are busy (``benchmarks/training.py``).
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
        keep_freed_memory()
        trained = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        self.parameters = [*trained.values()]
        self.device = self.parameters[0].device
        matrices = {name: weight for name, weight in trained.items() if name.rpartition(".")[2].startswith("W_")}
        others = [weight for name, weight in trained.items() if name not in matrices]  # biases and norms
        decays = {"params": [*matrices.values()], "weight_decay": self.recipe.weight_decay}
        groups = [decays, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.recipe.lr, betas=self.recipe.betas, fused=True)
        self.autocast = in_bfloat16(self.recipe, self.device)
        self.forward: Any = partial(passing.training_pass, self.model, positions=self.task.trained_positions)

    def start_moments(self) -> None:
        """Make Adam's moments, as the first step would, so that they can be read from a state."""
        for weight in self.parameters:
            moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
            self.optimizer.state[weight] = {"step": torch.zeros((), device=weight.device), **moments}

    def compile(self) -> None:
        """Compile the forward and the backward pass; without a working compiler, print a warning and do not compile."""
        torch.compiler.reset()  # PyTorch stops compiling after a few models with the same code; earlier ones are done
        few = self.task.assemble(self.task.training_set(self.recipe.batch, 0).to(self.device)).inputs
        decompose = "cpp.use_decompose_tanh"  # halves the time of GELU on the CPU, with an error of 1e-7
        try:
            known = self.device.type == "cpu" and decompose in torch._inductor.list_options()  # older versions lack it
            fast = torch.compile(self.forward, dynamic=False, options={decompose: True} if known else {})
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                fast(few).float().sum().backward()
            self.forward = fast
        except Exception as error:  # the compiler can raise anything; training works without it
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            print(f"torch.compile does not work here ({reason}); training without it", file=sys.stderr)
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
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.max_grad_norm or math.inf)
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
        self.task: Any = task  # a RetrievalTask if the recipe is growing (see Preset)
        self.recipe, self.seed, self.device = recipe, seed, device
        self.training_set = task.training_set(recipe.training_examples, seed).to(device)
        self._order = (-1, torch.empty(0, dtype=torch.long))

    def __getitem__(self, step: int) -> Examples:
        """Return the examples of a step."""
        task: Any = self.task_at(step)
        drawn = self.draws(step)
        return task.assemble(self.task.first_steps(drawn, task.n_steps) if self.recipe.growing else drawn)

    def task_at(self, step: int) -> TrainableTask:
        """Return the task of a step: the task itself, or with fewer retrieval steps if the recipe is growing.

        It has one more after every equal interval in the first half of training.
        """
        if not self.recipe.growing:
            return self.task
        most = self.task.n_steps
        return self.task.shortened(min(most, 1 + step * (most - 1) // max(1, self.recipe.steps // 2)))

    def draws(self, step: int) -> Any:
        """Return the raw batch of a step, with all retrieval steps."""
        batch = self.recipe.batch
        epoch, place = divmod(step, self.recipe.training_examples // batch)
        if self._order[0] != epoch:
            order = RngStream.BATCH_ORDER.generator(self.seed, epoch).permutation(self.recipe.training_examples)
            self._order = epoch, torch.from_numpy(order).to(self.device)
        return self.training_set.take(self._order[1][place * batch : (place + 1) * batch])
