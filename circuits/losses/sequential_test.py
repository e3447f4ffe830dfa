"""Test the losses of many circuits against a model's own, with as few examples as the decision needs.

Every circuit sees the same examples in the same order. What is tested is its *excess*: the loss of an example under the
circuit minus that under the model, as a share of the *range*; or the difference of two circuits' excesses. The range is
what the model's heads do for the task: its loss with all heads idle minus its own. An example counts at most 1 in
either direction: nothing is worse than no heads, and decisions have a stated error whatever the tails of the losses are
(betting.py). No loss is low whose average is not, if examples count whole. All circuits start on a few examples. One
whose excess is clearly too large stops there; the others go on until they are decided or no examples are left.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.ablation import Begun, each_loss
from circuits.averages import Averages, averages
from circuits.circuit import Circuit
from circuits.errors import BadInput, Unsolved, real
from circuits.given import number_of_examples
from circuits.losses.betting import decided
from circuits.losses.loss import Compared, Loss, Mean
from circuits.losses.sample import BLOCK, Sample, blocks
from circuits.mechanisms.mechanism import Idle
from circuits.model.transformer import Transformer, windowed
from circuits.results import Number, Result
from circuits.roles import Roles
from circuits.settings import current, has_many_heads
from circuits.task import Examples, Task
from circuits.utils.kept import keep, kept, key_of

Key = TypeVar("Key")
OWN = Circuit()  # the unablated model


class Range(Result):
    """What the heads of a model do for a task.

    Attributes:
        own: the model's own loss.
        none: the loss with all heads idle.
    """

    own: Loss
    none: Loss

    @property
    def width(self) -> float:
        """The difference of the two losses: one unit of an excess."""
        return self.none.mean - self.own.mean

    def share(self, loss: Loss) -> float:
        """Return how far a loss is above the model's own, as a share of the range; without a bound."""
        return (loss.mean - self.own.mean) / self.width


@dataclass(frozen=True)
class DecidedLoss:
    """A loss, and the decision whether it is low.

    Attributes:
        loss: the loss.
        decision: whether the excess is below or above the limit.
        excess: the excess, as a share of the range.
        ahead: the first measure (``Measured``, task.py) minus that of what it is compared with, on the same examples.
    """

    loss: Loss
    decision: Compared
    excess: Number = 0.0
    ahead: Mean | None = None

    def __str__(self) -> str:
        return f"{self.loss} on {self.loss.n_examples} examples, {self.decision}"


class SequentialTest:
    """Tests circuits of one model; every loss is measured only once.

    Attributes:
        threshold: an excess below it counts as low.
        absolute: whether the excess is over 0 and the threshold a loss, as in the paper.
        two_sided: whether the task says that a loss clearly below the model's own is not low either.
    """

    def __init__(
        self,
        model: Transformer,
        task: Task,
        examples: Examples | Sample,
        threshold: float,
        averages: Averages | None = None,
        scale: Range | None = None,
        absolute: bool = False,
        searching: bool = False,
    ) -> None:
        """Make a test.

        Args:
            model: the model.
            task: its task.
            examples: all examples of the test; a circuit that is undecided on them stays undecided.
            threshold: an excess below it counts as low.
            averages: the average outputs of idle heads, over other examples; by default as for ``evaluate``.
            scale: the range; by default that on all examples.
            absolute: whether the threshold is a loss.
            searching: whether decisions are by three standard errors (``sure``, settings.py), which takes fewer
                examples. It has no stated error: rare failures may be missed. Discovery searches with it.

        Raises:
            BadInput: there are too few or too many examples, or the threshold is not a number above 0, or no share.
        """
        number_of_examples(len(examples))
        if real("the threshold", threshold, above=0.0) >= 1 and not (absolute or searching):
            raise BadInput(f"the threshold is {threshold:g}; expected a share of the range, below 1")
        self.model, self.task, self.examples = model, task, examples
        self.threshold, self.absolute, self.searching = threshold, absolute, searching
        self.two_sided = bool(getattr(task, "two_sided", False))
        self._measures, self._n_components = getattr(task, "measures", ()), len(task.loss_components)
        self._averages = averages
        if scale is not None:
            self.scale = scale
        self.rounds = [current().glanced if searching else current().few]
        while self.rounds[-1] < len(examples):
            self.rounds.append(4 * self.rounds[-1])
        self.n_evaluations = 0
        self._n: dict[str, int] = {}  # the number of examples that each circuit is tested on, by its digest
        self._losses: dict[str, Tensor] = {}  # what was measured of each, here or against another threshold
        self._begun: dict[int, dict[tuple[int, int], list[Begun]]] = {}  # by the first example; of a search

    @cached_property
    def scale(self) -> Range:
        """The range; Unsolved if the heads do nothing for the task."""
        idle = Circuit(dict.fromkeys(self.averages.patterns, Idle()))  # all heads
        own, none = self.measure([OWN, idle])
        if not self._loss(self._losses[idle.digest] - self._losses[OWN.digest]).positive:
            said = f"the loss is {own}, and with all heads idle {none}"
            raise Unsolved(f"{said}; expected clearly more, for else there is nothing that a circuit explains")
        return Range(own=own, none=none)

    @property
    def first(self) -> Examples:
        """The examples by which attention and losses by label are split: a block; of many heads or in a search, few."""
        few = self.searching or has_many_heads(self.model.cfg)
        return self.examples.take(slice(0, current().enough if few else BLOCK))

    @property
    def averages(self) -> Averages:
        """The averages of the model's heads; by default those of ``evaluate``."""
        if self._averages is None:
            self._averages = averages(self.model, self.task)
        return self._averages

    @property
    def roles(self) -> Roles:
        """The roles of the examples, with the windows of the model."""
        return windowed(self.model, self.examples.roles)

    def with_threshold(self, threshold: float, absolute: bool = False) -> "SequentialTest":
        """Return the same test against another threshold; what one has measured, the other does not measure again."""
        given = self.model, self.task, self.examples, threshold, self._averages, self.scale
        other = SequentialTest(*given, absolute, self.searching)
        other._losses = self._losses
        return other

    def test(
        self,
        circuits: Mapping[Key, Circuit],
        *,
        than: Circuit | Mapping[Key, Circuit] = OWN,
        limit: float | None = None,
        failing: Literal["below", "above"] = "above",
        min_examples: int = 0,
        max_examples: int | None = None,
    ) -> dict[Key, DecidedLoss]:
        """Test circuits, and return their losses with the decisions under the same keys.

        Computation that circuits share runs once for all circuits of a call. If one decision on the ``failing`` side is
        enough for a statement to fail, it is wrong in at most ``error`` (settings.py) of cases, however many circuits
        there are (the first step of Holm's correction). A statement that holds needs all decisions on the other side,
        each of which has this error.

        Args:
            circuits: the circuits to test.
            than: what their losses are compared with: the model, another circuit, or one for each.
            limit: the limit of the excess; by default the threshold.
            failing: the side on which one decision is enough.
            min_examples: the smallest number of examples for every loss, however early its decision is clear.
            max_examples: the largest number of examples, even if a decision stays open; by default all. With 0, nothing
                is run, and all circuits must be known.
        """
        others = than if isinstance(than, Mapping) else dict.fromkeys(circuits, than)
        limit = self.threshold if limit is None else limit
        several = {"below_of": 1, "above_of": 1, f"{failing}_of": max(1, len(circuits))}
        several["above_of"] *= 1 + self.two_sided  # either side is enough

        def compared(key: Key) -> tuple[Circuit, ...]:
            return (circuits[key],) if self.absolute else (circuits[key], others[key], OWN)

        def made(key: Key) -> DecidedLoss:
            one, n = circuits[key], min(self._n[circuit.digest] for circuit in compared(key))
            unit = max(self.scale.width, 2 * limit) if self.absolute else self.scale.width  # a loss may be any number
            excess = self._excess(one, others[key], n, unit)
            at = limit / unit if self.absolute else limit
            loss = self._loss(self._losses[one.digest][:n])
            side = self.decide(excess, at, **several)
            if self.two_sided and side != "above":  # what lies clearly below the model's own loss is not the model
                side = {"above": "above", "below": side, "undecided": "undecided"}[self.decide(-excess, at, **several)]
            if side == "below" and others[key] == OWN and not self.searching:  # a few examples may count more than 1
                whole = self._excess(one, others[key], n, unit, bounded=False)
                far = whole.mean().abs() if self.two_sided else whole.mean()
                side = "below" if far.item() < at else "undecided"
            ahead = None
            if self._measures and not self.absolute:
                apart = self._losses[one.digest][:n] - self._losses[others[key].digest][:n]
                ahead = Mean.of(apart[:, self._n_components])
            return DecidedLoss(loss, side, excess.mean().item(), ahead)

        def goes_on(key: Key) -> bool:
            if any(circuit.digest not in self._n for circuit in compared(key)):
                return True
            one = made(key)
            few = one.loss.n_examples < current().enough
            return one.decision == "undecided" or (one.decision == "below" and few)

        def run(keys: Iterable[Key], n: int) -> None:
            self._run([one for key in keys for one in compared(key)], min(n, len(self.examples)))

        run(circuits, min_examples)
        rounds = [n for n in self.rounds if max_examples is None or n <= max_examples]
        for n in rounds or ([max_examples] if max_examples else []):
            run([key for key in circuits if goes_on(key)], n)
        return {key: made(key) for key in circuits}

    def costs(self, circuits: Mapping[Key, Circuit], than: Circuit, **n: Any) -> dict[Key, DecidedLoss]:
        """Test, as ``test`` does, if changes of a circuit have the least effect; a statement fails if one has none."""
        return self.test(circuits, than=than, limit=current().least, failing="below", **n)

    def size(self, one: DecidedLoss) -> float:
        """Return how large an excess is; without its sign if a loss below the model's own is not low either."""
        return abs(one.excess) if self.two_sided else one.excess

    def test_one(self, circuit: Circuit, *, max_examples: int | None = None) -> DecidedLoss:
        """Test one circuit."""
        return self.test({None: circuit}, max_examples=max_examples)[None]

    def decide(self, values: Float[Tensor, " example"], limit: float, below_of: int = 1, above_of: int = 1) -> Compared:
        """Return on which side of a limit the mean of values between -1 and 1 is; NaN is left out.

        ``below_of`` and ``above_of`` are the numbers of decisions of which one on this side is enough.
        """
        values, error = values[~values.isnan()].cpu(), current().error
        if self.searching:
            return Mean.of(values).compared(limit)
        return decided(values, limit, error / below_of, error / above_of)

    def _excess(
        self, one: Circuit, other: Circuit, n: int, unit: float, bounded: bool = True
    ) -> Float[Tensor, " example"]:
        """Return the excess of one circuit over another on the first examples; between -1 and 1 if it is bounded."""
        most = 1.0 if bounded else math.inf

        def over_the_model(circuit: Circuit) -> Float[Tensor, " example"]:
            known = (self._losses[one.digest] for one in (circuit, circuit if self.absolute else OWN))
            losses, own = (one[:n, : self._n_components].double().mean(dim=1) for one in known)
            own = 0.0 * own if self.absolute else own
            return ((losses - own) / unit).clamp(-most, most)

        excess = over_the_model(one)
        return excess if self.absolute or other == OWN else (excess - over_the_model(other)).clamp(-most, most)

    def measure(
        self, circuits: Iterable[Circuit], n: int | None = None, progress: Callable[[float], None] = lambda share: None
    ) -> list[Loss]:
        """Return the losses of circuits on ``n`` examples (by default on all), however early their decisions are clear.

        Few examples may miss a rare failure with a high loss.
        """
        wanted, enough = list(circuits), min(len(self.examples) if n is None else n, len(self.examples))
        self._run(wanted, enough, progress)
        return [self._loss(self._losses[circuit.digest][:enough]) for circuit in wanted]

    def each(self, circuits: Iterable[Circuit], n: int | None = None) -> list[Float[Tensor, "example component"]]:
        """Return the losses of circuits on ``n`` examples (by default on all), example by example."""
        wanted = list(circuits)
        n = self.measure(wanted, n)[0].n_examples
        return [self._losses[circuit.digest][:n, : self._n_components] for circuit in wanted]

    def _run(
        self, circuits: Iterable[Circuit], enough: int, progress: Callable[[float], None] = lambda share: None
    ) -> None:
        """Run every circuit up to ``enough`` examples; circuits that start from the same example run together."""
        going_on: dict[int, list[Circuit]] = {}
        circuits = sorted(dict.fromkeys(circuits), key=lambda one: one != OWN)  # what a task compares with comes first
        for circuit in circuits:
            if self._n.get(circuit.digest, 0) < enough:
                going_on.setdefault(self._n.get(circuit.digest, 0), []).append(circuit)
        work = sum(len(group) * (enough - start) for start, group in going_on.items())
        needed = any(Idle() in circuit.heads.values() for circuit in circuits)
        done = 0
        for start, group in going_on.items():
            for block in blocks(start, enough):
                known = [len(self._known(circuit)) for circuit in group]
                new = [circuit for circuit, n in zip(group, known, strict=True) if n < block.stop]
                done += (block.stop - block.start) * (len(group) - len(new))
                measured: list[list[Tensor]] = [[] for _ in new]
                few = block.stop <= current().in_passing and has_many_heads(self.model.cfg)
                begun = self._begun.setdefault(block.start, {}) if self.searching and few else None
                given = self.model, self.task, self.examples.take(block), new, self.averages if needed else None
                for index, _, losses in each_loss(*given, begun):
                    measured[index].append(losses.cpu())
                    done += len(losses)
                    self.n_evaluations += len(losses)
                    progress(done / work)
                for circuit, parts in zip(new, measured, strict=True):
                    before = self._losses.get(circuit.digest, parts[0][:0])
                    more = torch.cat(parts)[len(before) - block.start :]
                    self._losses[circuit.digest] = torch.cat([before, more])
                    keep(self._key(circuit), {"losses": self._losses[circuit.digest]})
            self._n |= dict.fromkeys((circuit.digest for circuit in group), enough)

    def _known(self, circuit: Circuit) -> Tensor:
        """Return what was measured of a circuit, here, against another threshold, or before the work was stopped."""
        if circuit.digest not in self._losses and (found := kept(self._key(circuit))):
            self._losses[circuit.digest] = found["losses"]
        return self._losses.get(circuit.digest, torch.empty(0))

    def _key(self, circuit: Circuit) -> str:
        return key_of(self.examples.take(slice(0, 8)).inputs, len(self.examples), circuit.digest)

    def n_of(self, circuit: Circuit) -> int:
        """Return the number of examples that a circuit was measured on."""
        return self._n[circuit.digest]

    def excess(self, one: Circuit, other: Circuit = OWN, bounded: bool = True) -> Mean:
        """Return the excess over another circuit, at most 1 an example if bounded, on the examples of both and OWN."""
        n = min(map(self.n_of, (one, other, OWN)))
        return Mean.of(self._excess(one, other, n, self.scale.width, bounded))

    def _loss(self, losses: Float[Tensor, "example number"]) -> Loss:
        return Loss.of(losses, self.task.loss_components, self._measures)
