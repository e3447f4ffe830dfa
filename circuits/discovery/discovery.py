"""Find the circuit of a transformer: replace each head with what its attention shows (paper, Appendix E, steps 1 to 4).

The stages:

    1. content or position    find the heads that their average pattern can replace; it depends on positions only
    2. content heads          give them paths where their attention is near 1, each on the instances where it is; on all
                              other instances they get fixed positions or their average
    3. all heads replaced     remove redundant paths, and make every head as simple as the loss allows
    4. paths' heads intact    give heads back what the heads with paths above them need in order to look by themselves
"""

from collections.abc import Sequence

from pydantic import computed_field

from circuits.averages import Averages, averaged_examples
from circuits.checks.content_or_position import ContentOrPosition, content_or_position
from circuits.circuit import Circuit, Head
from circuits.circuit_file import StoredCircuit
from circuits.discovery.fitting import Fitting, Trial, content, intact_above
from circuits.discovery.observed_paths import ObservedPaths
from circuits.discovery.steering import steer
from circuits.entrance import entrance
from circuits.errors import Unsolved
from circuits.given import stream_seed
from circuits.losses.loss import Loss, allowed_loss
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import SequentialTest
from circuits.model.transformer import Transformer
from circuits.results import Result
from circuits.settings import current
from circuits.task import Task
from circuits.utils.progress import part_of, shown


class Discovery(Result, extra="ignore"):
    """A circuit, how it was found, and its loss.

    Attributes:
        circuit: a mechanism for every head of the model.
        content_or_position: the content heads and the positional heads.
        unablated: the loss of the unablated model, on examples that no choice was made on.
        combined: the loss with every head replaced, on the same examples.
        trials: every change that was tried, with its loss.
        threshold: the threshold; a loss below it counts as low.
        seed: the seed of the examples.
        n_evaluations: the number of sequences that were run to measure losses.
        n_readings: the number of sequences that were run to read attention patterns.
    """

    circuit: StoredCircuit
    content_or_position: ContentOrPosition
    unablated: Loss
    combined: Loss
    trials: tuple[Trial, ...]
    threshold: float
    seed: int
    n_evaluations: int
    n_readings: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def found(self) -> bool:
        """Whether the combined loss is below the threshold by more than three standard errors."""
        return self.combined.mean < self.threshold and not self.combined.near(self.threshold)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def explains(self) -> bool:
        """Whether the combined loss is at most twice the unablated loss, plus a tenth of the threshold."""
        return self.combined.mean <= allowed_loss(self.unablated, self.threshold)

    @property
    def n_undecided(self) -> int:
        """The number of changes that were not made because the examples did not decide whether the loss stays low."""
        return sum(trial.tested.decision == "undecided" and not trial.taken for trial in self.trials)


@entrance
def discover(
    model: Transformer,
    task: Task,
    *,
    n_examples: int = 1024,
    threshold: float = 0.05,
    seed: int = 0,
) -> Discovery:
    """Find the circuit of a model.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, all of the same length, and a loss. A path may hold on some
            instances only, by the labels of a group of the examples, or by position if they have no groups.
        n_examples: the number of examples for the choices; the final losses are measured on as many others. Patterns
            are averaged over as many others, too, but at most 1,024.
        threshold: a loss below it counts as low; the paper uses 0.05.
        seed: the seed of the examples. Averages, choices, final losses and ``validate`` use independent examples.

    Raises:
        Unsolved: the model does not solve the task.
        BadInput: a number is out of range.
    """

    def drawn(stream: str, n: int) -> Sample:
        return Sample(task, n, stream_seed(seed, stream), next(model.parameters()).device)

    with shown(None, "discovering") as progress:
        sample = drawn("discovery", n_examples)
        test = SequentialTest(model, task, sample, threshold)
        (unablated,) = test.measure([Circuit()])
        if unablated.mean >= threshold or unablated.near(threshold):
            expected = f"expected a loss clearly below the threshold {threshold:g}"
            raise Unsolved(f"the unablated loss is {unablated}; {expected}")
        mean_over = min(n_examples, current().averaged)
        averaged = averaged_examples(model, task, seed, mean_over)
        means = Averages.of(model, averaged).patterns
        fewer = SequentialTest(model, task, drawn("content", max(2, n_examples // 2)), threshold)
        heads = content_or_position(fewer, means, part_of(progress, 0.0, 0.4))
        lowest = max(unablated.mean, 0.0)
        allowed = allowed_loss(unablated, threshold) - lowest
        aim, last = lowest + current().aim * allowed, lowest + current().last * allowed

        def grown(likely: Sequence[Head]) -> tuple[Circuit, Fitting]:
            observed = ObservedPaths(model, averaged, means, likely)
            paths = {head: observed.mechanism(head, observed.rows[head]) for head in heads.content}
            growing = Fitting(test.with_threshold(aim), observed)
            return growing.grow(Circuit({**means, **paths})), growing

        circuit, growing = grown(likely=())
        grew = [growing]
        if test.test_one(circuit).decision == "above":  # content heads may give their targets less than half
            circuit, growing = grown(likely=heads.content)
            grew.append(growing)
        progress(0.5)
        looking = content(circuit)
        layers = sorted({-1, *(head.layer for head in looking)})[:-1]  # the sets of intact heads above them differ
        ways = [circuit, *(intact_above(layer, circuit, looking) for layer in layers)]
        combined, *losses = growing.test.measure(ways)
        intact = {
            layer: test.with_threshold(max(threshold, loss.mean + current().slack))
            for layer, loss in zip(layers, losses, strict=True)
        }
        fitting, finishing = (
            Fitting(test.with_threshold(max(limit, combined.mean + current().slack)), growing.observed, looking, intact)
            for limit in (aim, last)
        )
        circuit = fitting.prune(circuit)
        progress(0.6)
        circuit = fitting.simplify(circuit, part_of(progress, 0.6, 0.9))
        circuit = finishing.prune(circuit)
        progress(0.95)
        if any(path.joins_roles for path in circuit.paths) and test.test_one(circuit).decision == "below":
            circuit = steer(finishing, test, sample.first, circuit)
        fresh = SequentialTest(model, task, drawn("discovered", n_examples), threshold)
        unablated, combined = fresh.measure([Circuit(), circuit])
        progress(1.0)
    fits = (*grew, fitting, finishing)
    tests = (test, *(one.test for one in fits), *intact.values())
    return Discovery(
        circuit=circuit,
        content_or_position=heads,
        unablated=unablated,
        combined=combined,
        trials=tuple(trial for one in fits for trial in one.trials),
        threshold=threshold,
        seed=seed,
        n_evaluations=heads.n_evaluations + sum(one.n_evaluations for one in tests),
        n_readings=mean_over + sum(one.observed.n_readings for one in grew),
    )
