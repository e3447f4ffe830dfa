"""Find the circuit of a transformer: replace each head with what its attention shows (paper, Appendix E, steps 1 to 4).

The stages:

    1. idle heads             find the heads whose outputs can be ablated; nothing more is asked of them
    2. content or position    find the heads that their average pattern can replace; it depends on positions only
    3. content heads          give them paths where their attention is near 1, each on the instances where it is; on all
                              other instances they get fixed positions or their average
    4. all heads replaced     remove redundant paths, and make every head as simple as the loss allows
    5. paths' heads intact    give heads back what the heads with paths above them need in order to look by themselves
"""

from collections.abc import Sequence
from typing import get_args

from pydantic import computed_field

from circuits.averages import Averages, averaged_examples
from circuits.circuit import Circuit, Head
from circuits.circuit_file import StoredCircuit
from circuits.discovery.content_or_position import ContentOrPosition, content_or_position
from circuits.discovery.fitting import Fitting, Trial, content, intact_above
from circuits.discovery.idle import can_be_idle, idle_heads
from circuits.discovery.literal import literal_circuit
from circuits.discovery.observed_paths import ObservedPaths
from circuits.discovery.ranked import Ranked
from circuits.discovery.steering import steer
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import stream_seed
from circuits.losses.betting import margin
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import DecidedLoss, Range, SequentialTest
from circuits.mechanisms.mechanism import Idle
from circuits.model.transformer import Transformer
from circuits.results import Protocol, Result
from circuits.settings import current, has_many_heads
from circuits.split import at_most, part
from circuits.task import Examples, Task
from circuits.utils.progress import Progress, part_of, shown


class Discovery(Result, extra="ignore"):
    """A circuit, how it was found, and its loss.

    Attributes:
        circuit: a mechanism for every head of the model.
        content_or_position: the content heads and the positional heads; all others are idle. None if
            the protocol is ``paper``, or a gate was learned for each head.
        scale: the model's own loss, and that with all heads idle.
        combined: the loss with every head replaced or idle, on examples that no choice was made on.
        trials: every change that was tried, with its loss.
        threshold: an excess loss below this share of the range counts as low.
        seed: the seed of the examples.
        n_evaluations: the number of sequences that were run to measure losses.
        n_readings: the number of sequences that were run to read attention patterns and outputs.
    """

    circuit: StoredCircuit
    content_or_position: ContentOrPosition | None
    scale: Range
    combined: DecidedLoss
    trials: tuple[Trial, ...]
    threshold: float
    seed: int
    n_evaluations: int
    n_readings: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def found(self) -> bool:
        """Whether the loss with every head replaced or idle is low."""
        return self.combined.decision == "below"

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
    protocol: Protocol = "extended",
) -> Discovery:
    """Find the circuit of a model.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, all of the same length, and a loss. A path may hold on some
            instances only, by the labels of a group of the examples, or by position if they have no groups.
        n_examples: the number of examples for the choices; the final losses are measured on as many others. Patterns
            are averaged over as many others, too, but at most 1,024, or 256 of many heads.
        threshold: a loss counts as low if it exceeds the model's own by less than this share of the range, which is the
            loss with all heads idle minus the model's own.
        seed: the seed of the examples. Averages, attention that suggests paths, choices, final losses and ``validate``
            use independent examples.
        protocol: the mechanisms to search with: all (``extended``), or those of Appendix E (``paper``), for which the
            threshold is a loss. The search is greedy: where it finds none, there may still be one.

    Raises:
        Unsolved: the model's heads do nothing for the task.
        BadInput: a number is out of range, or a data set too small: choices and final losses take 4 parts of 17 each.
    """
    if protocol not in get_args(Protocol):
        raise BadInput(f"the protocol is {protocol!r:.60}; expected extended or paper")

    def drawn(stream: str, n: int) -> Sample:
        if stream not in ("discovery", "discovered"):  # of these the user gets as many as were asked for, or none
            n = at_most(task, n, stream)
        return Sample(part(task, stream), n, stream_seed(seed, stream), next(model.parameters()).device)

    with shown(None, "discovering") as progress:
        n_few, many = max(2, min(n_examples, current().enough)), has_many_heads(model.cfg)
        n_read = min(n_examples, current().averaged_of_many if many else current().averaged)
        averages = Averages.of(model, averaged_examples(model, task, seed, n_read))
        shown_by = averaged_examples(model, task, seed, n_read, "attention")  # the paths that are tried
        ranging = SequentialTest(model, task, drawn("range", n_few), threshold, averages)
        given = averages, ranging.scale
        test = SequentialTest(model, task, drawn("discovery", n_examples), threshold, *given, searching=True)
        heads, trials, n_read = None, list[Trial](), 2 * n_read
        if protocol == "paper":
            tests = [test.with_threshold(current().last * threshold, absolute=True)]
            circuit = literal_circuit(tests[0], shown_by, progress)
        elif many:
            rank_by = drawn("content", current().ranked)
            aim = max(threshold / 2, min(current().last * threshold, threshold - margin(n_examples)))  # decidable
            tests, n_read = [test.with_threshold(aim)], n_read + len(rank_by)
            ranked = Ranked(tests[0], rank_by.take(slice(0, len(rank_by))), averages, trials)
            circuit = ranked.circuit(shown_by, part_of(progress, 0.05, 0.95))
        else:
            halves = drawn("content", max(2, n_examples // 2))
            fewer = SequentialTest(model, task, halves, threshold, *given, searching=True)
            heads, circuit, fits, tests = _one_by_one(test, fewer, shown_by, n_few, progress)
            trials = [trial for one in fits for trial in one.trials]
            n_read = n_read // 2 + sum({id(one.observed): one.observed.n_readings for one in fits}.values())
        fresh = SequentialTest(model, task, drawn("discovered", n_examples), threshold, *given, protocol == "paper")
        combined = fresh.test({None: circuit}, min_examples=n_examples)[None]
        progress(1.0)
    return Discovery(
        circuit=circuit,
        content_or_position=heads,
        scale=ranging.scale,
        combined=combined,
        trials=tuple(trials),
        threshold=threshold,
        seed=seed,
        n_evaluations=sum(one.n_evaluations for one in (ranging, test, *tests, fresh)),
        n_readings=n_read,
    )


def _one_by_one(
    test: SequentialTest, fewer: SequentialTest, shown_by: Examples, n_few: int, progress: Progress
) -> tuple[ContentOrPosition, Circuit, list[Fitting], list[SequentialTest]]:
    """Search with every head ablated alone first; ``fewer`` tells content from position. Return all that was used."""
    threshold, averages = test.threshold, test.averages
    aim, last = current().aim * threshold, current().last * threshold
    screening = test.with_threshold(aim)
    idle = idle_heads(screening, tuple(averages.patterns), part_of(progress, 0.0, 0.3))
    means = {head: mean for head, mean in averages.patterns.items() if head not in idle.heads}
    heads = content_or_position(fewer, means, idle, part_of(progress, 0.3, 0.5))

    def grown(likely: Sequence[Head]) -> tuple[Circuit, Fitting]:
        observed = ObservedPaths(test.model, shown_by, means, likely)
        paths = {head: observed.mechanism(head, observed.rows[head]) for head in heads.content}
        growing = Fitting(test.with_threshold(aim), observed)
        return growing.grow(Circuit({**idle.heads, **means, **paths})), growing

    circuit, growing = grown(likely=())
    grew = [growing]
    if test.test_one(circuit).decision == "above":  # content heads may give their targets less than half
        circuit, growing = grown(likely=heads.content)
        grew.append(growing)
    progress(0.6)
    looking = content(circuit)
    layers = sorted({-1, *(head.layer for head in looking)})[:-1]  # the sets of intact heads above them differ
    ways: dict[int | None, Circuit] = {layer: intact_above(layer, circuit, looking) for layer in layers}
    ways[None] = circuit
    measured = growing.test.test(ways, min_examples=n_few)
    slack = current().slack
    intact = {layer: test.with_threshold(max(threshold, measured[layer].excess + slack)) for layer in layers}
    fitting, finishing = (
        Fitting(test.with_threshold(max(limit, measured[None].excess + slack)), growing.observed, looking, intact)
        for limit in (aim, last)
    )
    circuit = fitting.prune(circuit)
    progress(0.7)
    circuit = fitting.simplify(circuit, part_of(progress, 0.7, 0.9))
    circuit = finishing.prune(circuit)
    for head in [head for head, mechanism in circuit.heads.items() if not mechanism.paths]:
        idle_now = [one for one, mechanism in circuit.heads.items() if mechanism == Idle()]
        if head not in idle_now and can_be_idle(screening, head, idle_now):
            circuit = finishing.tried("simplify", circuit, (head, Idle()))
    progress(0.95)
    if any(path.joins_roles for path in circuit.paths) and test.test_one(circuit).decision == "below":
        circuit = steer(finishing, test, circuit)
    fits = [*grew, fitting, finishing]
    return heads, circuit, fits, [screening, fewer, *(one.test for one in fits), *intact.values()]
