"""Losses of many circuits against a threshold, with as few examples as the decision takes.

Every circuit sees the same examples in the same order. All start on a few; one whose loss is clearly above the
threshold is dropped there, the others go on, and one so near to the threshold that chance could decide it gets more
and more examples until it is decided or there are none left.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.ablation.evaluation import Piece, pieces
from circuits.circuit import Circuit
from circuits.losses.loss import Loss, check_threshold
from circuits.losses.loss_cache import LossCache
from circuits.losses.sample import Sample, blocks, check_number
from circuits.problem import Examples, Problem
from circuits.utils.cores import on_all_cores

FEW, ENOUGH = 32, 128  # examples that every circuit sees, and those on which a loss below the threshold is measured
IN_PASSING = 512  # examples that a candidate gets which is no more than a step on the way
Key = TypeVar("Key")


@dataclass(frozen=True)
class DecidedLoss:
    """A loss, and on which side of the threshold it lies."""

    loss: Loss
    decision: Literal["below", "above", "undecided"]

    def __str__(self) -> str:
        return f"{self.loss} on {self.loss.n_examples} examples, {self.decision}"


@dataclass(frozen=True)
class _Part:
    """A piece of an evaluation with its circuits, and the place of its first example among all."""

    piece: Piece
    circuits: list[Circuit]
    first: int


class SequentialTest:
    """Tests circuits of one model against a threshold; what was measured once is not measured again."""

    def __init__(
        self,
        model: HookedTransformer,
        problem: Problem,
        examples: Examples | Sample,
        threshold: float,
        cache: LossCache | None = None,
    ) -> None:
        """``examples`` are all there are; a circuit that is undecided on them stays so.

        What stands in the ``cache`` is not measured again; every result is what it would be if nothing stood there.

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
        self.cache = LossCache() if cache is None else cache
        self._n: dict[str, int] = {}  # on how many examples each circuit is tested, by its digest

    def with_threshold(self, threshold: float) -> "SequentialTest":
        """The same test against another threshold; both share what they measure."""
        return SequentialTest(self.model, self.problem, self.examples, threshold, self.cache)

    def test(
        self, circuits: Mapping[Key, Circuit], *, min_examples: int = 0, max_examples: int | None = None
    ) -> dict[Key, DecidedLoss]:
        """Test circuits by name; what they share is run once for those that are asked together.

        Args:
            circuits: to test.
            min_examples: every loss is measured on so many, however early the decision is clear.
            max_examples: even if they leave the decision open; all there are if it is not given.
        """
        wanted = [*circuits.values()]
        self._run(wanted, min(min_examples, len(self.examples)))
        for enough in (min(n, len(self.examples)) for n in self.rounds if max_examples is None or n <= max_examples):
            self._run([circuit for circuit in wanted if self._goes_on(circuit)], enough)
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
        """The losses of circuits on ``n`` examples, or on all there are, however early they could be decided.

        Rare failures, each of a great loss, may not have come up in fewer.
        """
        components = self.problem.loss_components
        return [Loss.of(losses, components) for losses in self.each(circuits, n, progress)]

    def each(
        self,
        circuits: Iterable[Circuit],
        n: int | None = None,
        progress: Callable[[float], None] = lambda share: None,
    ) -> list[Float[Tensor, "example component"]]:
        """The same, example by example."""
        wanted, enough = list(circuits), len(self.examples) if n is None else min(n, len(self.examples))
        self._run(wanted, enough, progress)
        return [self.cache.losses(circuit)[:enough] for circuit in wanted]

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
                self.cache.add(part.circuits, part.first, losses)
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
        return part.piece.losses() if any(self.cache.n(circuit) < last for circuit in part.circuits) else None

    def difference(self, one: Circuit, other: Circuit) -> Loss:
        """How much higher the loss of ``one`` is, on the examples that both were measured on."""
        n = min(self._n[one.digest], self._n[other.digest])
        return Loss.of(self.cache.losses(one)[:n] - self.cache.losses(other)[:n], self.problem.loss_components)

    def _goes_on(self, circuit: Circuit) -> bool:
        if circuit.digest not in self._n:
            return True
        decision = self._decided(circuit).decision
        return decision == "undecided" or (decision == "below" and self._n[circuit.digest] < ENOUGH)

    def _decided(self, circuit: Circuit) -> DecidedLoss:
        loss = Loss.of(self.cache.losses(circuit)[: self._n[circuit.digest]], self.problem.loss_components)
        if loss.near(self.threshold):
            return DecidedLoss(loss, "undecided")
        return DecidedLoss(loss, "below" if loss.mean < self.threshold else "above")
