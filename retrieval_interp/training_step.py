"""One step of training: the batch it sees, its learning rate, its device, and what it does to the weights."""

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.errors import BadInput
from circuits.problem import Examples
from retrieval_interp.any_task import Drawn, Task
from retrieval_interp.presets import Recipe
from retrieval_interp.streams import Stream


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, constant, then a cosine to zero over the last ``decay`` share of the steps."""
    warm = min(1.0, (step + 1) / recipe.warmup)
    start = recipe.steps * (1 - recipe.decay)
    gone = max(0.0, (step - start) / (recipe.steps - start)) if recipe.decay else 0.0
    return recipe.lr * warm * 0.5 * (1 + math.cos(math.pi * gone))


def optimizer_for(model: HookedTransformer, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with decoupled weight decay on matrices, none on biases and norms."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if name.rsplit(".", 1)[-1].startswith("W_")]
    vectors = [p for name, p in trained if not name.rsplit(".", 1)[-1].startswith("W_")]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.lr, fused=True)


def choose_device(name: str) -> torch.device:
    """``auto`` takes CUDA, then MPS, then the CPU.

    Raises:
        BadInput: the device does not exist here.
    """
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


@dataclass
class TrainingStep:
    """One optimiser step of a model on a batch: bf16 autocast where it is fast, compiled where that works."""

    model: HookedTransformer
    task: Task
    recipe: Recipe

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.optimizer = optimizer_for(self.model, self.recipe)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.autocast = has_fast_bfloat16(self.device)
        self.forward: Any = self.model

    def compile(self) -> None:
        """Compile the forward and the backward pass, where a compiler is found; else say so and go on without."""
        torch.compiler.reset()  # PyTorch gives up after a few models with the same code; those before are done with
        # Decomposing tanh halves the time of GELU on the CPU; the error stays at 1e-7.
        options: dict[str, Any] = {"cpp.use_decompose_tanh": True} if self.device.type == "cpu" else {}
        self.forward = torch.compile(self.model, dynamic=False, options=options)
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                few = self.task.training_set(self.recipe.batch, 0).to(self.device)
                self.forward(self.task.assemble(few).inputs).float().sum().backward()
        except Exception as error:  # whatever the compiler raises, training can go on without it
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            print(f"torch.compile does not work here ({reason}); training without it", file=sys.stderr)
            self.forward = self.model
        self.optimizer.zero_grad()

    def losses(self, examples: Examples) -> Tensor:
        """Partial losses averaged over a batch, ``[part]``."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs = self.forward(examples.inputs)
        return self.task.training_losses(outputs.float(), examples).mean(dim=0)

    def __call__(self, draws: Drawn, lr: float) -> Tensor:
        """Take one step; returns the partial losses before it, ``[part]``."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        parts = self.losses(self.task.assemble(draws))
        parts.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        # A gradient that is no number spoils the weights only now: let it show in what is returned.
        return torch.where(norm.isfinite(), parts.detach(), torch.nan)


class Batches:
    """The batch of every step: each epoch visits the whole training set in an order of its own."""

    def __init__(self, task: Task, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.size, self.batch, self.seed, self.device = recipe.training_examples, recipe.batch, seed, device
        self.training_set = task.training_set(self.size, seed).to(device)
        self._order = (-1, torch.empty(0, dtype=torch.long))

    def __getitem__(self, step: int) -> Drawn:
        epoch, place = divmod(step, self.size // self.batch)
        if self._order[0] != epoch:
            order = Stream.BATCH_ORDER.generator(self.seed, epoch).permutation(self.size)
            self._order = epoch, torch.from_numpy(order).to(self.device)
        return self.training_set.take(self._order[1][place * self.batch : (place + 1) * self.batch])
