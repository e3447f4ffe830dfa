"""What every check takes: a circuit of a model on a task, and the examples that test it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from circuits.averages import Averages, averages
from circuits.checks.content_or_position import ContentOrPosition, content_or_position
from circuits.circuit import Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import stream_seed
from circuits.losses.loss import Loss, strict_threshold
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.model.transformer import Transformer
from circuits.results import Decision, Verdict
from circuits.settings import current
from circuits.task import Task

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
        threshold: a loss below it counts as low; the paper uses 0.05.
        test: the sequential test against the threshold.
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
        sample = Sample(task, n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
        circuit.check(sample.roles, model.cfg.n_layers, model.cfg.n_heads)
        self.model, self.task, self.circuit = model, task, circuit
        self.n_examples, self.seed, self.threshold = n_examples, seed, threshold
        self.test = SequentialTest(model, task, sample, threshold, self.averages)

    @cached_property
    def unablated(self) -> Loss:
        """The loss of the unablated model."""
        return self.test.measure([Circuit()])[0]

    @cached_property
    def combined(self) -> Loss:
        """The loss with all named heads replaced (step 5)."""
        return self.test.measure([self.circuit])[0]

    @cached_property
    def up_to(self) -> tuple[Loss, ...]:
        """For every layer, the loss with the named heads up to this layer replaced and those above intact."""
        layers = {layer: self.circuit.up_to(layer) for layer in range(self.model.cfg.n_layers)}
        return tuple(decided.loss for decided in self.test.test(layers).values())

    @cached_property
    def strict(self) -> SequentialTest:
        """The test against the strict threshold for single paths."""
        return self.test.with_threshold(strict_threshold(self.unablated, self.combined, self.threshold))

    @cached_property
    def averages(self) -> Averages:
        """What every head does on average, over examples that neither the test nor a discovery has."""
        return averages(self.model, self.task, self.seed, stream=f"{STREAM} means")

    @property
    def means(self) -> dict[Head, FixedPattern]:
        """Every head's average pattern."""
        return self.averages.patterns

    @cached_property
    def content_or_position(self) -> ContentOrPosition:
        """The content heads and the positional heads of the model, on examples of their own."""
        n, device = min(self.n_examples, current().enough), next(self.model.parameters()).device
        sample = Sample(self.task, n, stream_seed(self.seed, f"{STREAM} of content"), device)
        return content_or_position(SequentialTest(self.model, self.task, sample, self.threshold), self.means)


def verdict(name: str, said: str, fails: Lists = NOTHING, undecided: Lists = NOTHING) -> Verdict:
    """Return a verdict that fails with any thing in the first lists, and is undecided with any in the others.

    Every list has a text, which introduces its things in the sentence.
    """
    lists = [f"{text}{listed(things)}." for text, things in (*fails.items(), *undecided.items()) if things]
    decision: Decision = "fails" if any(fails.values()) else "undecided" if any(undecided.values()) else "holds"
    return Verdict(name=name, decision=decision, sentence=" ".join([said, *lists] if said else lists))


def is_low(name: str, what: str, loss: Loss, threshold: float) -> Verdict:
    """Return whether a loss is below a threshold, by more than ``sure`` standard errors."""
    side: Decision = "holds" if loss.mean < threshold else "fails"
    sentence = f"{what} is {loss}, {'below' if side == 'holds' else 'not below'} the threshold {threshold:g}."
    if loss.near(threshold):
        side = "undecided"
        sentence += f" It is within {current().sure:g} standard errors of it. {MORE}"
    return Verdict(name=name, decision=side, sentence=sentence)


def listed(things: Iterable[object], separator: str = "; ", most: int = 6) -> str:
    """Return things as text, at most ``most`` of them."""
    texts = [str(one) for one in things]
    return separator.join(texts[:most]) + (" ..." if len(texts) > most else "")
