"""Losses of many circuits against a threshold, with as few examples as the decision takes.

Every circuit sees the same examples in the same order. All start on a few; one whose loss is clearly above the
threshold is dropped there, the others go on, and one so near to the threshold that chance could decide it gets more
and more examples until it is decided or there are none left.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.circuit import Circuit
from circuits.cores import on_all_cores
from circuits.evaluation import Piece, pieces
from circuits.loss import Loss, check_threshold
from circuits.measured import Ledger
from circuits.problem import Examples, Problem
from circuits.sample import Sample, blocks, check_number

FEW, ENOUGH = 32, 128  # examples that every circuit sees, and those on which a loss below the threshold is measured
IN_PASSING = 512  # examples that a candidate gets which is no more than a step on the way


@dataclass(frozen=True)
class Judgement:
    """A loss, and on which side of the threshold it lies."""

    loss: Loss
    side: Literal["below", "above", "undecided"]

    def __str__(self) -> str:
        return f"{self.loss} on {self.loss.n_examples} examples, {self.side}"


@dataclass(frozen=True)
class _Part:
    """A piece of an evaluation with its circuits, and the place of its first example among all."""

    piece: Piece
    circuits: list[Circuit]
    first: int


class Judge:
    """Judges circuits of one model; what was measured once is not measured again."""

    def __init__(
        self,
        model: HookedTransformer,
        problem: Problem,
        examples: Examples | Sample,
        threshold: float,
        ledger: Ledger | None = None,
    ) -> None:
        """``examples`` are all there are; a circuit that is undecided on them stays so.

        What stands in the ``ledger`` is not measured again; every judgement is what it would be if nothing stood there.

        Raises:
            BadInput: there are too few examples, or too many, or the threshold is no number above 0.
        """
        check_number(len(examples))
        check_threshold(threshold)
        self.model, self.problem, self.examples, self.threshold = model, problem, examples, threshold
        self.rounds = [FEW]
        while self.rounds[-1] < len(examples):
            self.rounds.append(4 * self.rounds[-1])
        self.n_evaluations = 0
        self._n: dict[str, int] = {}  # on how many examples each circuit is judged, by its digest
        self._ledger = Ledger() if ledger is None else ledger

    def __call__(self, circuits: Iterable[Circuit], most: int | None = None) -> list[Judgement]:
        """Judge every circuit; what circuits share is run once for those that are asked together.

        Args:
            circuits: to judge.
            most: examples, even if they leave the side undecided; all there are if it is not given.
        """
        wanted = list(circuits)
        for enough in (min(n, len(self.examples)) for n in self.rounds if most is None or n <= most):
            self._run([circuit for circuit in wanted if self._goes_on(circuit)], enough)
        return [self._judgement(circuit) for circuit in wanted]

    def measure(
        self,
        circuits: Iterable[Circuit],
        n: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Loss]:
        """The losses of circuits on ``n`` examples, or on all there are, however early they could be decided.

        Rare failures, each of a great loss, may not have come up in fewer.
        """
        parts = self.problem.parts
        return [Loss.of(losses, parts) for losses in self.each(circuits, n, progress)]

    def each(
        self,
        circuits: Iterable[Circuit],
        n: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Float[Tensor, "example part"]]:
        """The same, example by example."""
        wanted, enough = list(circuits), len(self.examples) if n is None else min(n, len(self.examples))
        self._run(wanted, enough, progress)
        return [self._ledger.losses(circuit)[:enough] for circuit in wanted]

    def _run(
        self, circuits: Iterable[Circuit], enough: int, progress: Callable[[float], None] = lambda share: None
    ) -> None:
        """Go on with every circuit up to so many examples; those that have begun at the same one go together."""
        going_on: dict[int, list[Circuit]] = {}
        for circuit in dict.fromkeys(circuits):
            if self._n.get(circuit.digest, 0) < enough:
                going_on.setdefault(self._n.get(circuit.digest, 0), []).append(circuit)
        work = sum(len(group) * (enough - start) for start, group in going_on.items())
        done = 0

        def take(part: _Part, losses: Tensor | None) -> None:
            nonlocal done
            if losses is not None:
                self._ledger.add(part.circuits, part.first, losses)
            done += part.piece.size
            progress(done / work)

        parts = (part for start, group in going_on.items() for part in self._parts(start, enough, group))
        on_all_cores(self._losses, parts, take, next(self.model.parameters()).device)
        for group in going_on.values():
            self._n |= dict.fromkeys((circuit.digest for circuit in group), enough)
        self.n_evaluations += work

    def _parts(self, start: int, enough: int, group: list[Circuit]) -> Iterator[_Part]:
        """What is to be run so that a group has come from ``start`` to ``enough`` examples."""
        for block in blocks(start, enough):
            for piece in pieces(self.model, self.problem, self.examples.take(block), group):
                yield _Part(piece, [group[index] for index in piece.circuits], block.start + piece.examples.start)

    def _losses(self, part: _Part) -> Tensor | None:
        """The losses of a part, if they are not known."""
        last = part.first + part.piece.examples.stop - part.piece.examples.start
        return part.piece.losses() if any(self._ledger.n(circuit) < last for circuit in part.circuits) else None

    def difference(self, one: Circuit, other: Circuit) -> Loss:
        """How much higher the loss of ``one`` is, on the examples that both were measured on."""
        n = min(self._n[one.digest], self._n[other.digest])
        return Loss.of(self._ledger.losses(one)[:n] - self._ledger.losses(other)[:n], self.problem.parts)

    def _goes_on(self, circuit: Circuit) -> bool:
        if circuit.digest not in self._n:
            return True
        judgement = self._judgement(circuit)
        return judgement.side == "undecided" or (judgement.side == "below" and self._n[circuit.digest] < ENOUGH)

    def _judgement(self, circuit: Circuit) -> Judgement:
        loss = Loss.of(self._ledger.losses(circuit)[: self._n[circuit.digest]], self.problem.parts)
        if loss.near(self.threshold):
            return Judgement(loss, "undecided")
        return Judgement(loss, "below" if loss.mean < self.threshold else "above")
