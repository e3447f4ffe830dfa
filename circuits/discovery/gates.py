"""Choose between mechanisms for all heads at once: a gate for each head, learned by gradients.

Every head is a mixture of the mechanisms that some circuits give it, such as its average pattern, one-hot paths, and
its own pattern. The weights of the mixtures are learned together, in a few dozens of steps: they keep the distance from
the model's own answers small, at a price for every mechanism but the first. The price rises from step to step, so that
one run gives circuits of all sizes: heads that are worth more keep what they have for longer. A head is judged while
the others change, too, and this takes as long as some dozens of runs, whatever the number of heads. (Learned gates of
heads: Voita et al. 2019; of edges: Bhaskar et al. 2024.)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit, Head
from circuits.given import losses_of, read_positions
from circuits.mechanisms.mechanism import Intact, Mechanism, head_pattern
from circuits.model.layers import Edit, layers
from circuits.model.transformer import Transformer, windowed
from circuits.task import Comparable, Examples, Measured, Task
from circuits.utils.kept import keep, kept, key_of
from circuits.utils.progress import Progress

POSITIONS = 320  # of the examples of a step
RATE = 0.06  # of Adam
OTHER = 0.4  # the price of other mechanisms than a head's own pattern, as a share of the price of that
MIXED = 1.5  # the price of a mixture in the end, if gates start from given weights, as the same share
MEANS = 0.3  # how much the changes of averages count in the distance, beside the differences of single answers

Weights = Mapping[Head, Float[Tensor, " circuit"]]  # of the mixture of every head; they add up to 1


def learned_gates(
    model: Transformer,
    task: Task,
    examples: Examples,
    circuits: Sequence[Circuit],
    prices: tuple[float, float],
    steps: int,
    start: Weights | None = None,
    progress: Progress = lambda share: None,
) -> dict[Head, Float[Tensor, "step circuit"]]:
    """Return how much of each circuit's mechanism every head has after each step; the weights of a step add up to 1.

    Args:
        model: the model.
        task: its task. The distance is what it says (``Comparable``), else the loss.
        examples: the examples, a few at a time; a rest of fewer is not used.
        circuits: the circuits, without idle heads; a head without a mechanism is intact. Where one has the mechanism of
            an earlier one, it has no weight, unless it is the last.
        prices: what a head that keeps its own pattern costs at first and in the end, in units of the loss. The first
            circuit's mechanisms cost nothing, all others ``OTHER`` of this.
        steps: the number of steps.
        start: weights to start from. They are then pushed towards 0 and 1 in the second half of the steps (mixtures
            that are worth more than their price stay): a circuit has no mixtures, and its loss is higher than that of
            the mixtures that it is made from.
        progress: is called with the finished share.
    """
    named = sorted({head for one in circuits for head in one.heads})
    heads = [head for head in named if len({_of(one, head) for one in circuits}) > 1]
    began = [] if start is None else [start[head].tolist() for head in heads]
    key = key_of(examples.inputs, len(examples), [one.digest for one in circuits], [*prices], steps, began)
    if found := kept(key):
        return dict(zip(heads, found["weights"], strict=True))
    at_once = min(len(examples), max(1, POSITIONS // examples.inputs.shape[1]))
    n_batches, batches = len(examples) // at_once, dict[int, Mixed]()
    device = examples.inputs.device
    of_each = [[_of(one, head) for one in circuits] for head in heads]
    there = torch.tensor([[one not in ways[:n] for n, one in enumerate(ways)][:-1] for ways in of_each], device=device)
    beyond = 1 - 0.5 * there.float()  # of what is left for a circuit and all after it, the share of these
    if began:
        weights = torch.tensor(began, device=device)
        left = 1 - (weights.cumsum(dim=1) - weights)
        beyond = 1 - (weights / left.clamp(min=1e-6))[:, :-1].clamp(0, 1)
    adam = torch.optim.Adam([beyond.requires_grad_()], RATE, (0.9, 0.98))
    own = [[0.0 if one == ways[0] else 1.0 if one == Intact() else OTHER for one in ways] for ways in of_each]
    share = torch.tensor(own, device=device)  # of the price
    made = torch.zeros(len(heads), steps, len(circuits))
    for step in range(steps):
        done = (step + 1) / steps
        price = prices[0] * (prices[1] / prices[0]) ** done
        mixing = price * MIXED * max(0.0, 2 * done - 1) if began else 0.0
        if (at := step % n_batches) not in batches:
            batches = batches if n_batches < steps else {}
            batches[at] = Mixed(model, task, examples.take(slice(at * at_once, (at + 1) * at_once)), heads, circuits)
        with torch.enable_grad():
            weights = _weights(beyond)
            cost = price * (weights * share).sum() + mixing * (weights * (1 - weights)).sum()
            cost = cost + batches[at].distance(weights)
            (beyond.grad,) = torch.autograd.grad(cost, beyond)
        adam.step()
        with torch.no_grad():
            beyond.clamp_(0, 1).masked_fill_(~there, 1.0)
            made[:, step] = _weights(beyond)
        progress(done)
    keep(key, {"weights": made})
    return dict(zip(heads, made, strict=True))


def _weights(beyond: Float[Tensor, "head gate"]) -> Float[Tensor, "head circuit"]:
    """Return what every circuit gets: a share of what those before it leave, and the last one all the rest."""
    left = torch.cat([torch.ones_like(beyond[:, :1]), beyond.cumprod(dim=1)], dim=1)
    return torch.cat([left[:, :-1] * (1 - beyond), left[:, -1:]], dim=1)


def _of(circuit: Circuit, head: Head) -> Mechanism:
    return circuit.heads.get(head, Intact())


class Mixed:
    """A model whose heads are mixtures of what circuits give them, on one batch."""

    def __init__(
        self, model: Transformer, task: Task, examples: Examples, heads: Sequence[Head], circuits: Sequence[Circuit]
    ) -> None:
        self.opened, self.task, self.examples = layers(model, examples), task, examples
        self.roles, self.cfg, self.circuits = windowed(model, examples.roles), model.cfg, circuits
        self.place, self.read = {head: place for place, head in enumerate(heads)}, read_positions(task, examples)
        with torch.no_grad():
            self.own = self._run(None)

    def distance(self, weights: Float[Tensor, "head circuit"]) -> Float[Tensor, ""]:
        """Return the distance of the answers from the model's own, averaged over the examples.

        Differences of single answers hide that all are shifted a little to one side. So changes of the averages count,
        too: of the loss, and of the first measure (``Measured``), as a share of its average size.
        """
        outputs, unablated = self._outputs(self._run(weights)), self._outputs(self.own)
        if not isinstance(self.task, Comparable):
            return losses_of(self.task, outputs, self.examples, finite=False).mean()
        apart = self.task.differences(outputs, unablated, self.examples).nanmean()
        loss, own = (losses_of(self.task, one, self.examples, finite=False).mean() for one in (outputs, unablated))
        shift = (loss - own).abs()
        if isinstance(self.task, Measured):
            now, own = (self.task.measured(one, self.examples)[:, 0] for one in (outputs, unablated))
            if own.any():  # a share of nothing would be NaN
                shift = shift + (now - own).mean().abs() / own.abs().mean()
        return apart + MEANS * shift

    def _run(self, weights: Float[Tensor, "head circuit"] | None) -> Float[Tensor, "row d_out"]:
        residual = self.opened.embed()
        for layer in range(self.cfg.n_layers):
            edit = None if weights is None else self._edit(layer, weights)
            residual = self.opened.block(layer, residual, edit)
        return self.opened.read(residual[self.read])

    def _outputs(self, rows: Float[Tensor, "row d_out"]) -> Float[Tensor, "batch pos d_out"]:
        outputs = rows.new_full((*self.examples.inputs.shape[:2], rows.shape[-1]), torch.nan)
        outputs[self.read] = rows
        return outputs

    def _edit(self, layer: int, weights: Float[Tensor, "head circuit"]) -> Edit:
        ways = {head: self._ways(head, weights) for head in (Head(layer, n) for n in range(self.cfg.n_heads))}

        def mixed(own: Tensor) -> Tensor:
            each = own.unbind(dim=1)  # the gradient of selecting one of them at a time is slow
            return torch.stack([self._pattern(head, ways[head], each[head.index]) for head in ways], dim=1)

        return mixed

    def _ways(self, head: Head, weights: Float[Tensor, "head circuit"]) -> list[tuple[Mechanism, Any]]:
        own = [_of(circuit, head) for circuit in self.circuits]
        return [*zip(own, weights[self.place[head]], strict=True)] if head in self.place else [(own[0], 1.0)]

    def _pattern(self, head: Head, ways: Sequence[tuple[Mechanism, Any]], own: Tensor) -> Tensor:
        """Return the mixture of a head's patterns."""
        roles, total = self.roles.in_layer(head.layer), torch.zeros_like(own)
        for mechanism, weight in ways:
            one = own if mechanism == Intact() else head_pattern(head, mechanism, roles, own.shape[-1]).to(own.dtype)
            total = total + weight * one
        return total
