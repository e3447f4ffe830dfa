"""Several seeds of one preset trained as one program: their weights stacked, every seed with its own data.

What each of them learns is what it learns alone (``training_step.py``), but for rounding: the same weights to begin
with, the same batches, gradients clipped for each on its own. One small model leaves most of a GPU idle; eight at once
do not. A CPU is busy with one: there products of stacked matrices are no faster, and the models take turns.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from circuits.problem import Examples
from retrieval_interp.any_task import Drawn
from retrieval_interp.model import build
from retrieval_interp.presets import Preset
from retrieval_interp.training_step import (
    Batches,
    adamw,
    compiled,
    in_bfloat16,
    largest_norm,
    learning_rate,
)

Forward = Callable[[dict[str, Tensor], dict[str, Tensor], Tensor], Tensor]  # of weights, constants and inputs


def taking_turns(one: Forward) -> Forward:
    """The same as ``torch.func.vmap``, one model after the other."""

    def every(weights: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        own, constant = ({n: t.unbind() for n, t in stacked.items()} for stacked in (weights, buffers))
        answers = [
            one({n: t[i] for n, t in own.items()}, {n: t[i] for n, t in constant.items()}, each)
            for i, each in enumerate(inputs)
        ]
        return torch.stack(answers)

    return every


class ManySeeds:
    """Models of one shape, and the steps that train all of them.

    Attributes:
        seeds: of weights and data.
        weights: by name, those of all models on top of each other, ``[seed, ...]``.
    """

    def __init__(self, preset: Preset, seeds: Sequence[int], device: torch.device) -> None:
        """Models that begin with the weights of these seeds."""
        self.seeds, self.task, self.recipe, self.device = tuple(seeds), preset.task, preset.recipe, device
        cfg = preset.config
        models = [build(preset.task, cfg, seed).to(device, print_details=False) for seed in seeds]
        self._model = models[0]  # its code runs, with the weights of all
        stacked, self._buffers = stack_module_state(models)
        trained = {name for name, parameter in self._model.named_parameters() if parameter.requires_grad}
        self.weights = {name: tensor.detach().requires_grad_(name in trained) for name, tensor in stacked.items()}
        self._trained = [self.weights[name] for name in self.weights if name in trained]
        self._optimizer = adamw(((n, t) for n, t in self.weights.items() if n in trained), self.recipe)
        self._batches = [Batches(self.task, self.recipe, seed, device) for seed in seeds]
        self._one: Forward = lambda weights, buffers, x: functional_call(self._model, (weights, buffers), (x,))
        self._forward = taking_turns(self._one) if device.type == "cpu" else vmap(self._one)

    def compile(self) -> None:
        """Compile the forward and the backward pass, where a compiler is found; else say so and go on without."""
        few = self._batch(0).inputs

        def tried(forward: Forward) -> None:
            self._outputs(few, forward).sum().backward()

        if self.device.type == "cpu":
            self._forward = taking_turns(compiled(self._one, self.device, lambda one: tried(taking_turns(one))))
        else:
            self._forward = compiled(self._forward, self.device, tried)
        self._optimizer.zero_grad()

    def grown(self, number: int) -> bool:
        """Whether by step ``number`` the task has all of its hops; one that does not grow always has."""
        return self._batches[0].task_at(max(0, number)) == self.task

    def step(self, number: int) -> Float[Tensor, "seed part"]:
        """Take step ``number``, from 0; returns the partial losses before it, NaN for a model that diverges."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, number)
        self._optimizer.zero_grad()
        examples = self._batch(number)
        parts = self._means(self.task.training_losses(self._outputs(examples.inputs), examples))
        parts.mean(dim=1).sum().backward()
        norms = self._clip()
        self._optimizer.step()
        return torch.where(norms[:, None].isfinite(), parts.detach(), torch.nan)

    @torch.no_grad()
    def losses(self, examples: Examples) -> Float[Tensor, "seed part"]:
        """Every model's partial losses on the same examples."""
        n = len(self.seeds)
        inputs = examples.inputs.repeat(n, *(1 for _ in examples.inputs.shape[1:]))
        each = self._outputs(inputs).unflatten(0, (n, -1))
        return torch.stack([self.task.losses(outputs, examples).mean(dim=0) for outputs in each])

    def state(self, place: int) -> dict[str, Tensor]:
        """The weights of one of the models, as its own ``state_dict`` has them."""
        stacked = {**self.weights, **self._buffers}
        return {name: stacked[name][place].detach().cpu() for name in self._model.state_dict()}

    def _batch(self, number: int) -> Examples:
        """The examples of a step, those of the first seed first."""
        drawn = Drawn.joined([batches.draws(number) for batches in self._batches])
        return self._batches[0].task_at(number).assemble(drawn)

    def _outputs(self, inputs: Tensor, forward: Forward | None = None) -> Tensor:
        """What the models answer, each to its own share of the inputs."""
        shares = inputs.unflatten(0, (len(self.seeds), -1))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=in_bfloat16(self.recipe, self.device)):
            return (forward or self._forward)(self.weights, self._buffers, shares).flatten(0, 1).float()

    def _means(self, losses: Float[Tensor, "example part"]) -> Float[Tensor, "seed part"]:
        return losses.unflatten(0, (len(self.seeds), -1)).mean(dim=1)

    def _clip(self) -> Float[Tensor, " seed"]:
        """Scale down the gradients of every model whose norm is too large; returns the norms before."""
        grads = [weight.grad for weight in self._trained if weight.grad is not None]
        norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
        scale = (largest_norm(self.recipe) / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
        for grad in grads:
            grad.mul_(scale.view(-1, *(1 for _ in grad.shape[1:])))
        return norms
