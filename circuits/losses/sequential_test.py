"""Test the losses of many circuits against a threshold, with as few examples as the decision needs.

Every circuit sees the same examples in the same order. All circuits start on a few examples. A circuit whose loss is
clearly above the threshold stops there; the others go on. A circuit whose loss is close to the threshold gets more
examples until the loss is decided or no examples are left.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.ablation import each_loss
from circuits.averages import Averages, averages
from circuits.circuit import Circuit
from circuits.errors import real
from circuits.given import number_of_examples
from circuits.losses.loss import Compared, Loss
from circuits.losses.sample import Sample, blocks
from circuits.mechanisms.mechanism import Idle
from circuits.model.transformer import Transformer, windowed
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples, Task

Key = TypeVar("Key")


@dataclass(frozen=True)
class DecidedLoss:
    """A loss, and the decision whether it is below the threshold."""

    loss: Loss
    decision: Compared

    def __str__(self) -> str:
        return f"{self.loss} on {self.loss.n_examples} examples, {self.decision}"


class SequentialTest:
    """Tests circuits of one model against a threshold; every loss is measured only once."""

    def __init__(
        self,
        model: Transformer,
        task: Task,
        examples: Examples | Sample,
        threshold: float,
        averages: Averages | None = None,
    ) -> None:
        """Make a test.

        Args:
            model: the model.
            task: its task.
            examples: all examples of the test; a circuit that is undecided on them stays undecided.
            threshold: a loss below it counts as low.
            averages: the average outputs of idle heads, over other examples; by default as for ``evaluate``.

        Raises:
            BadInput: there are too few or too many examples, or the threshold is not a number above 0.
        """
        number_of_examples(len(examples))
        real("the threshold", threshold, above=0.0)
        self.model, self.task, self.examples, self.threshold = model, task, examples, threshold
        self._averages = averages
        self.rounds = [current().few]
        while self.rounds[-1] < len(examples):
            self.rounds.append(4 * self.rounds[-1])
        self.n_evaluations = 0
        self._n: dict[str, int] = {}  # the number of examples that each circuit is tested on, by its digest
        self._losses: dict[str, Tensor] = {}  # what was measured of each, here or against another threshold

    @property
    def roles(self) -> Roles:
        """The roles of the examples, with the windows of the model."""
        return windowed(self.model, self.examples.roles)

    def with_threshold(self, threshold: float) -> "SequentialTest":
        """Return the same test against another threshold; what one has measured, the other does not measure again."""
        other = SequentialTest(self.model, self.task, self.examples, threshold, self._averages)
        other._losses = self._losses
        return other

    def test(
        self,
        circuits: Mapping[Key, Circuit],
        *,
        min_examples: int = 0,
        max_examples: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> dict[Key, DecidedLoss]:
        """Test circuits, and return their losses with the decisions under the same keys.

        Computation that circuits share runs once for all circuits of a call.

        Args:
            circuits: the circuits to test.
            min_examples: the smallest number of examples for every loss, however early its decision is clear.
            max_examples: the largest number of examples, even if a decision stays open; by default all. With 0, nothing
                is run, and all circuits must be known.
            progress: is called with the finished share of the first ``min_examples``, 0 to 1.
        """
        wanted = [*circuits.values()]
        self._run(wanted, min(min_examples, len(self.examples)), progress)
        rounds = [n for n in self.rounds if max_examples is None or n <= max_examples]
        for n in rounds or ([max_examples] if max_examples else []):
            self._run([circuit for circuit in wanted if self._goes_on(circuit)], min(n, len(self.examples)))
        return {key: self._decided(circuit) for key, circuit in circuits.items()}

    def test_one(self, circuit: Circuit, *, max_examples: int | None = None) -> DecidedLoss:
        """Test one circuit."""
        return self.test({None: circuit}, max_examples=max_examples)[None]

    def measure(
        self,
        circuits: Iterable[Circuit],
        n: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Loss]:
        """Return the losses of circuits on ``n`` examples (by default on all), however early their decisions are clear.

        Few examples may miss a rare failure with a high loss.
        """
        return [Loss.of(losses, self.task.loss_components) for losses in self.each(circuits, n, progress)]

    def each(
        self,
        circuits: Iterable[Circuit],
        n: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Float[Tensor, "example component"]]:
        """Return the losses of circuits on ``n`` examples (by default on all), example by example."""
        wanted, enough = list(circuits), len(self.examples) if n is None else min(n, len(self.examples))
        self._run(wanted, enough, progress)
        return [self._losses[circuit.digest][:enough] for circuit in wanted]

    def _run(
        self, circuits: Iterable[Circuit], enough: int, progress: Callable[[float], None] = lambda share: None
    ) -> None:
        """Run every circuit up to ``enough`` examples; circuits that start from the same example run together."""
        going_on: dict[int, list[Circuit]] = {}
        circuits = [*dict.fromkeys(circuits)]
        for circuit in circuits:
            if self._n.get(circuit.digest, 0) < enough:
                going_on.setdefault(self._n.get(circuit.digest, 0), []).append(circuit)
        work = sum(len(group) * (enough - start) for start, group in going_on.items())
        if self._averages is None and any(Idle() in circuit.heads.values() for circuit in circuits):
            self._averages = averages(self.model, self.task)
        done = 0
        for start, group in going_on.items():
            for block in blocks(start, enough):
                known = [len(self._losses.get(circuit.digest, ())) for circuit in group]
                new = [circuit for circuit, n in zip(group, known, strict=True) if n < block.stop]
                done += (block.stop - block.start) * (len(group) - len(new))
                measured: list[list[Tensor]] = [[] for _ in new]
                for index, _, losses in each_loss(
                    self.model, self.task, self.examples.take(block), new, self._averages
                ):
                    measured[index].append(losses.cpu())
                    done += len(losses)
                    progress(done / work)
                for circuit, parts in zip(new, measured, strict=True):
                    before = self._losses.get(circuit.digest, parts[0][:0])
                    more = torch.cat(parts)[len(before) - block.start :]
                    self._losses[circuit.digest] = torch.cat([before, more])
            self._n |= dict.fromkeys((circuit.digest for circuit in group), enough)
        self.n_evaluations += work

    def difference(self, one: Circuit, other: Circuit) -> Loss:
        """Return the loss of ``one`` minus the loss of ``other``, on the examples that both were measured on."""
        n = min(self._n[one.digest], self._n[other.digest])
        return Loss.of(self._losses[one.digest][:n] - self._losses[other.digest][:n], self.task.loss_components)

    def _goes_on(self, circuit: Circuit) -> bool:
        if circuit.digest not in self._n:
            return True
        decision = self._decided(circuit).decision
        return decision == "undecided" or (decision == "below" and self._n[circuit.digest] < current().enough)

    def _decided(self, circuit: Circuit) -> DecidedLoss:
        loss = Loss.of(self._losses[circuit.digest][: self._n[circuit.digest]], self.task.loss_components)
        return DecidedLoss(loss, loss.compared(self.threshold))
