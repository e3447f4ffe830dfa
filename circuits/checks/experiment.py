"""What every check takes: a circuit of a model on a task, and the examples that test it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations

from circuits.averages import averages
from circuits.circuit import Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import stream_seed
from circuits.losses.loss import Compared
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import OWN, DecidedLoss, Range, SequentialTest
from circuits.mechanisms.mechanism import Idle, Resample
from circuits.model.transformer import Transformer, windowed
from circuits.results import Decision, Verdict
from circuits.settings import current, has_many_heads
from circuits.split import part
from circuits.task import Task
from circuits.utils.lazy import torch

Lists = Mapping[str, Sequence[object]]
NOTHING: Lists = {}
MORE = "Take more examples."
STREAM = "validation"  # the rng stream of the examples; discovery and averages use other streams


class Experiment:
    """A circuit under test. Each check is a function of an experiment; what several of them need is measured once.

    It is refused (BadInput) if the circuit names no head or does not fit, or as the arguments of ``validate`` are.
    Memory is bounded, whatever the number of examples, layers, heads and paths: one block of examples (sample.py), the
    sequences that run at once (ablation.py), and four bytes for each loss.

    Attributes:
        model: the model.
        task: its task.
        circuit: the hypothesis.
        n_examples: the number of fresh examples.
        seed: their seed; the same seed gives the same results.
        threshold: an excess loss below this share of the range counts as low.
        test: the sequential test against the threshold.
        averages: what every head does on average, over examples that neither the test nor a discovery has.
        has_others: whether the examples have counterfactual inputs, from which outputs can be resampled.
        all_heads: the heads of the model.
        heads: the circuit's heads: all that are not idle.
        outside: the idle heads, and those whose output is resampled.
        looking: the circuit's heads that look at content: they have paths, or are named intact.
        many: whether the model has so many heads that only those that look are tested one by one (``one_by_one``).
        more: what an undecided verdict says of more examples.
    """

    @entrance
    def __init__(
        self,
        model: Transformer,
        task: Task,
        circuit: Circuit,
        *,
        n_examples: int = 1024,
        seed: int = 0,
        threshold: float = 0.05,
    ) -> None:
        if not circuit.heads:
            raise BadInput("the circuit names no head; there is nothing to validate")
        sample = Sample(part(task, STREAM), n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
        circuit.check(windowed(model, sample.roles), model.cfg.n_layers, model.cfg.n_heads)
        for head, own in circuit.heads.items():  # a path could not be removed alone
            for one, other in combinations(sorted({source for source, _ in own.paths} & {*sample.roles}), 2):
                if torch.equal(sample.roles[one], sample.roles[other]):
                    both = f"{one!r} and {other!r}, which always stand at one position"
                    raise BadInput(f"{head} has paths from {both}; expected paths from one of them")
        self.model, self.task, self.circuit = model, task, circuit
        self.n_examples, self.seed, self.threshold = n_examples, seed, threshold
        self.averages = averages(model, task, seed, stream=f"{STREAM} means")
        self.test = SequentialTest(model, task, sample, threshold, self.averages)
        self.has_others = sample.first.counterfactual is not None
        self.all_heads = tuple(self.averages.patterns)
        self.outside = tuple(head for head, own in circuit.heads.items() if isinstance(own, Idle | Resample))
        self.heads = tuple(head for head in self.all_heads if head not in self.outside)
        self.looking = circuit.looking
        self.many = has_many_heads(model.cfg)
        self.more = f"More than {current().enough} examples are not run." if self.many else MORE

    @property
    def scale(self) -> Range:
        """The model's own loss, and that with all heads idle."""
        return self.test.scale

    @cached_property
    def combined(self) -> DecidedLoss:
        """The loss with all named heads replaced or idle, on all examples."""
        return self.test.test({None: self.circuit}, min_examples=self.n_examples)[None]

    @cached_property
    def up_to(self) -> tuple[DecidedLoss, ...]:
        """For every layer, the loss with the named heads up to this layer replaced and those above intact.

        Empty for a model with many heads.
        """
        if self.many:
            return ()
        layers = {layer: self.circuit.up_to(layer) for layer in range(self.model.cfg.n_layers)}
        return tuple(self.test.test(layers).values())

    @property
    def first(self) -> dict[Head, float]:
        """The average attention of every head to the first token, from all later positions."""
        rows = self.averages.attention[..., 1:, :]  # [layout, layer, head, query, key]
        there = rows.sum(dim=-1) > 0
        shares = (rows[..., 0] * there).sum(dim=(0, 3)) / there.sum(dim=(0, 3))
        return {head: shares[head.layer, head.index].item() for head in self.all_heads}

    def broken(self, circuit: Circuit) -> bool:
        """Whether a circuit that was measured is as bad as no heads, but for the threshold; examples count up to 2."""
        own, losses = (one.double().mean(dim=1) for one in self.test.each([OWN, circuit], self.test.n_of(circuit)))
        halved = (losses - own) / self.scale.width / 2
        return self.test.decide(halved, (1 - self.threshold) / 2) == "above"

    def without(self, *heads: Head) -> Circuit:
        """Return the model with some heads idle."""
        return Circuit(dict.fromkeys(heads, Idle()))

    def low(self, name: str, what: str, one: DecidedLoss) -> Verdict:
        """Return whether a loss is low, with the numbers."""
        said = f"{what} is {one.loss}: {self.excess(one)}, {SIDES[one.decision]} {self.threshold:.3g}."
        said = f"{said} {MORE}" if one.decision == "undecided" else said
        return Verdict(name=name, decision=DECISIONS[one.decision], sentence=said)

    def excess(self, one: DecidedLoss) -> str:
        """Return how far a loss is above the model's own in words; examples count whole, and not at most 1."""
        return f"{self.scale.share(one.loss):.4f} of the range above the model's own"


DECISIONS: Mapping[Compared, Decision] = {"below": "holds", "above": "fails", "undecided": "undecided"}
SIDES = {"below": "below", "above": "not below", "undecided": "not clearly on one side of"}


def verdict(name: str, said: str, fails: Lists = NOTHING, undecided: Lists = NOTHING) -> Verdict:
    """Return a verdict that fails with any thing in the first lists, and is undecided with any in the others.

    Every list has a text, which introduces its things in the sentence.
    """
    lists = [f"{text}{listed(things)}." for text, things in (*fails.items(), *undecided.items()) if things]
    decision: Decision = "fails" if any(fails.values()) else "undecided" if any(undecided.values()) else "holds"
    return Verdict(name=name, decision=decision, sentence=" ".join([said, *lists] if said else lists))


def is_low(name: str, what: str, one: DecidedLoss, threshold: float) -> Verdict:
    """Return whether a loss is below a threshold that is a loss, as in the paper."""
    sentence = f"{what} is {one.loss}, {SIDES[one.decision]} the threshold {threshold:g}."
    return Verdict(name=name, decision=DECISIONS[one.decision], sentence=sentence)


def listed(things: Iterable[object], separator: str = "; ", most: int = 6) -> str:
    """Return things as text, at most ``most`` of them."""
    texts = [str(one) for one in things]
    return separator.join(texts[:most]) + (f"{separator}and {len(texts) - most} more" if len(texts) > most else "")
