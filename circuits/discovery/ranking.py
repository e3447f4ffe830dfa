"""What it costs to change every head, all heads at once: a gate for each head, and its gradient.

Every head stands between two mechanisms, such as its own pattern and its average: (1 - gate) of the one and gate of the
other. All gates go from 0 to 1 together, in a few steps, and the gradient of the distance from the model's own answers
is averaged on the way (integrated gradients; Sundararajan et al. 2017, and for edges EAP-IG, Hanna et al. 2024). The
costs of all heads add up to the whole distance, so a head counts for what it costs while the others change, too. This
takes as long as some dozens of runs, whatever the number of heads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.given import losses_of, read_positions
from circuits.mechanisms.mechanism import Idle, Intact, Mechanism, head_pattern
from circuits.model.layers import layers
from circuits.model.transformer import Transformer, windowed
from circuits.task import Comparable, Examples, Task
from circuits.utils.kept import keep, kept, key_of
from circuits.utils.progress import Progress

STEPS = 6  # between the two mechanisms
POSITIONS = 2**9  # of a batch; the activations of all layers are in memory


def costs_of_change(
    model: Transformer,
    task: Task,
    examples: Examples,
    averages: Averages,
    one: Circuit,
    other: Circuit,
    progress: Progress = lambda share: None,
) -> dict[Head, float]:
    """Return what the change of every head from one circuit to another costs.

    Args:
        model: the model.
        task: its task. The distance is what it says (``Comparable``), else the loss.
        examples: the examples; a few dozen are enough.
        averages: the average outputs of idle heads.
        one, other: the circuits; a head without a mechanism is intact.
        progress: is called with the finished share.
    """
    heads = [head for head in averages.patterns if _of(one, head) != _of(other, head)]
    costs, key = torch.zeros(len(heads)), key_of(examples.inputs, len(examples), one.digest, other.digest)
    if not heads:
        return {}
    if found := kept(key):
        return dict(zip(heads, found["costs"].tolist(), strict=True))
    at_once = max(1, POSITIONS // examples.inputs.shape[1])
    parts = [examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once)]
    for done, part in enumerate(parts):
        between = _Between(model, task, part, averages, heads, one, other)
        for step in range(STEPS):
            gates = torch.full((len(heads),), (step + 0.5) / STEPS, requires_grad=True, device=part.inputs.device)
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(between.distance(gates), gates)
            costs += gradient.cpu() / STEPS / len(examples)
            progress((done + (step + 1) / STEPS) / len(parts))
    keep(key, {"costs": costs})
    return dict(zip(heads, costs.tolist(), strict=True))


def _of(circuit: Circuit, head: Head) -> Mechanism:
    return circuit.heads.get(head, Intact())


class _Between:
    """A model with every head between two mechanisms, on one batch."""

    def __init__(
        self,
        model: Transformer,
        task: Task,
        examples: Examples,
        averages: Averages,
        heads: list[Head],
        one: Circuit,
        other: Circuit,
    ) -> None:
        self.opened, self.task, self.examples, self.averages = layers(model, examples), task, examples, averages
        self.roles, self.n_layers = windowed(model, examples.roles), model.cfg.n_layers
        self.gate_of = {head: place for place, head in enumerate(heads)}
        self.read = read_positions(task, examples)
        self.by_layer: dict[int, dict[Head, tuple[Mechanism, Mechanism]]] = {}
        for head in averages.patterns:
            pair = _of(one, head), _of(other, head)
            if pair != (Intact(), Intact()):
                self.by_layer.setdefault(head.layer, {})[head] = pair
        self.made = {
            (head, place): self._made(head, mechanism)
            for pairs in self.by_layer.values()
            for head, pair in pairs.items()
            for place, mechanism in enumerate(pair)
            if mechanism != Intact()
        }
        with torch.no_grad():
            self.own = self._run(lambda layer: (None, {}))

    def _made(self, head: Head, mechanism: Mechanism) -> Tensor:
        n_positions = self.examples.inputs.shape[1]
        if mechanism == Idle():
            return self.averages.output(head, self.roles, n_positions)
        return head_pattern(head, mechanism, self.roles.in_layer(head.layer), n_positions)

    def distance(self, gates: Float[Tensor, " head"]) -> Float[Tensor, ""]:
        """Return the distance of the answers from the model's own, summed over the examples."""
        outputs = self._run(lambda layer: self._edits(layer, gates))
        if isinstance(self.task, Comparable):
            return self.task.differences(outputs, self.own, self.examples).nanmean(dim=(1, 2)).sum()
        return losses_of(self.task, outputs, self.examples, finite=False).mean(dim=1).sum()

    def _edits(self, layer: int, gates: Float[Tensor, " head"]) -> tuple[Any, dict[str, Any]]:
        pairs = self.by_layer.get(layer, {})

        def mixed(values: Tensor, dim: int, of_output: bool) -> Tensor:
            per_head = [*values.unbind(dim)]
            for head, pair in pairs.items():
                gate = gates[self.gate_of[head]] if head in self.gate_of else 0.0
                own, parts = per_head[head.index], []
                for place, mechanism in enumerate(pair):
                    replaced = mechanism != Intact() and (mechanism == Idle()) == of_output
                    parts.append(self.made[head, place].to(own.dtype).expand_as(own) if replaced else own)
                per_head[head.index] = (1 - gate) * parts[0] + gate * parts[1]
            return torch.stack(per_head, dim)

        kinds = {mechanism == Idle() for pair in pairs.values() for mechanism in pair if mechanism != Intact()}
        edit = (lambda pattern: mixed(pattern, 1, False)) if False in kinds else None
        return edit, {"z": lambda z: mixed(z, 2, True)} if True in kinds else {}

    def _run(self, edits: Callable[[int], tuple[Any, Mapping[str, Any]]]) -> Float[Tensor, "batch pos d_out"]:
        residual = self.opened.embed()
        for layer in range(self.n_layers):
            edit, of_heads = edits(layer)
            residual = self.opened.block(layer, residual, edit, of_heads or None)
        rows = self.opened.read(residual[self.read])
        outputs = rows.new_full((*residual.shape[:2], rows.shape[-1]), torch.nan)
        outputs[self.read] = rows
        return outputs
