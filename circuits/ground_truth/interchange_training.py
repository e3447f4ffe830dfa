"""Interchange intervention training: a model is trained to carry a given circuit.

Two instances of an example exchange what one path brings, and the model is trained to give the answers that the circuit
then gives (Geiger et al. 2022, *Inducing Causal Structure for Interpretable Neural Networks*). All else is trained to
have no effect, as in the strict form of Gupta et al. (2024, *InterpBench*). Each batch runs four times:

    plain       nothing is changed; the right answers are asked for
    output      at the path's source, the head's output (``hook_z``) is that of the partner
    attention   up to the path's layer, heads with paths attend along them, and uniformly from elsewhere; this path
                leads to the partner's target
    others      every head's output is that of another example, except at the sources of the head's paths

Whose answers are asked for in *output* and *attention* follows from the paths alone
(``circuits.interchange.predicted``). Where they leave it open, nothing is asked. In *attention* the partner's target
may stand after the source; there a position looks ahead, which no attention of the model's own does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from circuits.circuit import AttentionPath, Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput, real, whole
from circuits.flow.flow_check import LaidOut
from circuits.given import examples_of
from circuits.interchange.predicted import answers_if_exchanged
from circuits.interchange.variables import Interchangeable, couples
from circuits.losses.sample import stream_seed
from circuits.mechanisms.mechanism import Uniform
from circuits.mechanisms.one_hot import OneHot
from circuits.model.layers import check_edits
from circuits.model.transformer import Transformer, check_inputs
from circuits.model.windows import windowed
from circuits.problem import Examples
from circuits.roles import Roles
from circuits.utils.progress import Progress, shown

RUNS = PLAIN, OUTPUT, ATTENTION, OTHERS = range(4)


class Trainable(Interchangeable, LaidOut, Protocol):
    """A problem whose instances can exchange answers, and whose roles know pieces of information."""


@entrance
def train_to_carry(
    model: Transformer,
    problem: Trainable,
    circuit: Circuit,
    *,
    steps: int = 2000,
    batch: int = 64,
    lr: float = 2e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Float[Tensor, "step run"]:
    """Train a model in place towards solving a problem by the paths of a circuit, and by nothing else.

    Whether it came that far is not checked. The optimiser is AdamW, with 5% of the steps of linear warm-up, a cosine to
    zero over the others, weight decay 0.01, and gradients clipped at 1.

    Args:
        model: any HookedTransformer, with as many layers and heads as the circuit names.
        problem: its task, which is ``Interchangeable``, with squared distances, and has a layout; every example has at
            least two instances, and all have the same length.
        circuit: the circuit; all of its heads are one-hot, and its rows are paths without conditions.
        steps: the number of training steps.
        batch: the number of fresh examples of every step.
        lr: the highest learning rate.
        seed: the seed of the examples.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Returns:
        the loss of every step in the four runs: the distance of an answer from the one that is asked for, averaged over
        examples, instances and components (``problem.distances``).

    Raises:
        BadInput: the circuit does not fit the model or the problem, has other rows than paths, or does not solve the
            problem; the problem has other distances, one instance, or padding; no weight can be trained; or a number is
            out of range.
    """
    steps, batch = whole("the number of steps", steps, 1, 10**7), whole("the batch", batch, 2, 10**5)
    lr = real("lr", lr, above=0.0)
    check_edits(model)
    plan, weights = _Plan(problem, circuit), [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise BadInput("no weight of the model can be trained; expected some that require a gradient")
    plan.check(model, examples_of(problem, 2, 0, weights[0].device))
    optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(_of_highest, steps=steps))
    losses = torch.empty(steps, len(RUNS))
    with shown(progress, "interchange training") as progress:
        for step in range(steps):
            examples = examples_of(problem, batch, stream_seed(seed, f"step {step}"), weights[0].device)
            path, drawn = circuit.paths[step % len(circuit.paths)], stream_seed(seed, f"couples of step {step}")
            optimizer.zero_grad()
            each = plan.losses(model, examples, path, drawn)
            each.mean().backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            losses[step] = each.detach()
            progress((step + 1) / steps)
    return losses


def _of_highest(step: int, steps: int) -> float:
    """Return the share of the highest learning rate at a step: linear warm-up, then a cosine to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class _Plan:
    """What is asked for, whichever path is exchanged."""

    def __init__(self, problem: Trainable, circuit: Circuit) -> None:
        self.problem, self.circuit = problem, circuit
        rows = [own.rows if isinstance(own, OneHot) and not own.where else None for own in circuit.heads.values()]
        if not rows or any(own is None for own in rows) or len(circuit.paths) < sum(len(own or ()) for own in rows):
            raise BadInput("expected a circuit of one-hot heads whose rows are paths without conditions")
        if problem.layout.alike:
            raise BadInput("some roles of the problem look alike; expected roles that paths can tell apart")
        self.asked = {path: self._answers(path) for path in circuit.paths}
        missing = [
            name for name, one in zip(problem.loss_components, self._answers(None), strict=True) if one is not False
        ]
        if missing:
            raise BadInput(
                f"by its paths, the circuit does not answer {missing[0]}; expected one that solves the problem"
            )

    def _answers(self, path: AttentionPath | None) -> list[bool | None]:
        found = answers_if_exchanged(self.circuit, self.problem.layout, self.problem.read_at, path)
        return [found[name] for name in self.problem.loss_components]

    def check(self, model: Transformer, examples: Examples) -> None:
        """Check a model and the problem's examples.

        Raises:
            BadInput: the circuit or the examples do not fit the model, the examples have padding or one instance, or
                the distances are no squared errors of all instances.
        """
        self.circuit.check(windowed(model, examples.roles), model.cfg.n_layers, model.cfg.n_heads)
        check_inputs(model, examples)
        if examples.roles.valid is not None:
            raise BadInput("the examples have padding; expected examples of the same length")
        if examples.roles.positions.shape[2] < 2:
            raise BadInput(
                "every example has one instance only; expected at least two, which exchange what paths bring"
            )
        with torch.no_grad():
            distances = self.problem.distances(model(examples.inputs), examples)
        if not (distances >= 0).all():
            raise BadInput("the problem's distances are negative or missing; expected squared errors of all instances")

    def losses(self, model: Transformer, examples: Examples, path: AttentionPath, seed: int) -> Float[Tensor, " run"]:
        """Return the loss of each of the four runs; in two of them, couples of instances exchange what a path brings.

        Args:
            model: the model.
            examples: the examples.
            path: the path.
            seed: the seed of the couples.
        """
        partner, _ = couples(examples.roles, seed)
        with _four_runs(model, self.circuit, path, examples.roles, partner):
            outputs = model(examples.inputs.repeat(len(RUNS), *[1] * (examples.inputs.ndim - 1)))
        distances = [self.problem.distances(part, examples) for part in outputs.chunk(len(RUNS))]
        itself = torch.arange(partner.shape[1], device=partner.device).expand_as(partner)
        found = []
        for run, away in enumerate(distances):
            asked = self.asked[path] if run in (OUTPUT, ATTENTION) else [False] * away.shape[2]
            whose = {component: partner if one else itself for component, one in enumerate(asked) if one is not None}
            each = [away[:, :, component].gather(2, own[..., None]).mean() for component, own in whose.items()]
            found.append(torch.stack(each).mean() if each else away.sum() * 0)
        return torch.stack(found)


@contextmanager
def _four_runs(
    model: Transformer, circuit: Circuit, path: AttentionPath, roles: Roles, partner: Int[Tensor, "batch instance"]
) -> Iterator[None]:
    """Change a batch that stands four times in a row, each time in another way."""
    n, example = len(roles), torch.arange(len(roles), device=partner.device)[:, None]

    def attention(pattern: Float[Tensor, "four_batch head query key"], hook: nn.Module, layer: int) -> Tensor:
        pattern = pattern.clone()
        planted = [own for own in circuit.paths if own.head.layer == layer <= path.head.layer]
        for own in planted:
            elsewhere = Uniform().pattern(windowed(model, roles).in_layer(layer), pattern.shape[-1])
            pattern[ATTENTION * n : OTHERS * n, own.head.index] = elsewhere.to(pattern.dtype)
        for own in planted:
            targets = roles[own.target].gather(1, partner) if own == path else roles[own.target]
            row = nn.functional.one_hot(targets, pattern.shape[-1]).to(pattern.dtype)
            pattern[ATTENTION * n + example, own.head.index, roles[own.source]] = row
        return pattern

    def output(z: Float[Tensor, "four_batch pos head d_head"], hook: nn.Module, layer: int) -> Tensor:
        plain, changed = z[:n].detach(), z.clone()
        if path.head.layer == layer:
            run, at = OUTPUT * n + example, roles[path.source]
            changed[run, at, path.head.index] = z[run, at.gather(1, partner), path.head.index]
        kept = _sources(circuit, layer, roles, plain[..., 0])
        changed[OTHERS * n :] = torch.where(kept[..., None], z[OTHERS * n :], plain.roll(1, dims=0))
        return changed

    layers = range(model.cfg.n_layers)
    hooks = [(f"blocks.{layer}.attn.hook_pattern", partial(attention, layer=layer)) for layer in layers]
    hooks += [(f"blocks.{layer}.attn.hook_z", partial(output, layer=layer)) for layer in layers]
    with model.hooks(fwd_hooks=hooks):
        yield


def _sources(
    circuit: Circuit, layer: int, roles: Roles, like: Float[Tensor, "batch pos head"]
) -> Bool[Tensor, "batch pos head"]:
    """Return where the heads of a layer have paths."""
    there = torch.zeros_like(like, dtype=torch.bool)
    for path in circuit.paths:
        if path.head.layer == layer:
            there[..., path.head.index].scatter_(1, roles[path.source], True)
    return there
