"""Test a circuit against a model (paper, Appendix E).

Steps 1 and 2 of Appendix E state the hypothesis. The other steps run here, on fresh examples. Each line says what holds
if the step is passed:

    unablated            the model solves its task
    step 3               each head alone can be replaced with its hypothesised mechanism
    step 4               every head of the model has a mechanism
    step 5               all heads can be replaced at once
    faithful             the circuit's heads are enough (Wang et al. 2022; ``faithfulness.py``)
    complete             no other heads do their work (Wang et al. 2022; ``faithfulness.py``)
    step 6               no attention path can be removed (``removals.py``)
    alternative targets  no attention path could lead to another role instead (ours: not in the paper)
    merges               no two heads can be merged into one (the paper tests this for its transformer A, section 8.2)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from circuits.attention import ATTENTION_EXAMPLES, role_attention
from circuits.checks.content_or_position import content_or_position
from circuits.checks.faithfulness import faithfulness
from circuits.checks.heads_alone import each_head_alone
from circuits.checks.merging import merges
from circuits.checks.paper_protocol import paper_protocol
from circuits.checks.removals import removals
from circuits.checks.statements import Protocol
from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.flow.flow_check import flow_check
from circuits.losses.loss import strict_threshold
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import ENOUGH, SequentialTest
from circuits.model.transformer import Transformer
from circuits.task import Task
from circuits.utils.progress import Progress, part_of, shown
from circuits.validation.validation_report import ValidationReport
from circuits.validation.verdicts import verdicts

CONTENT_EXAMPLES = ENOUGH
STREAM = "validation"  # the rng stream of the examples; discovery and averages use other streams


@dataclass(frozen=True)
class Settings:
    """The arguments of ``validate``."""

    n_examples: int
    seed: int
    threshold: float
    protocol: Protocol
    metadata: Mapping[str, Any]


@entrance
def validate(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    threshold: float = 0.05,
    max_examples: int = 0,
    protocol: Protocol = "extended",
    metadata: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ValidationReport:
    """Test a circuit against a model (paper, Appendix E, steps 3 to 6).

    Memory is bounded, whatever the number of examples, layers, heads and paths. It holds one block of examples
    (``sample.py``), the sequences that run at once (``evaluation.py``), and four bytes for each loss (circuits times
    examples times components).

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, and a loss.
        circuit: the hypothesis.
        n_examples: the number of fresh examples.
        seed: the seed of the examples; the same seed gives the same report.
        threshold: a loss below it counts as low; the paper uses 0.05.
        max_examples: the largest number of examples. While the combined loss, or the loss without a path, is too close
            to the threshold to decide, the validation is repeated with four times as many examples, up to this
            number. By default it is not repeated.
        protocol: the basis of the report's decision: every check (``extended``), or Appendix E to the letter
            (``paper``).
        metadata: further facts about the model, shown in the report.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit names no head or does not fit the model, or a number is out of range.
    """
    settings = Settings(n_examples, seed, threshold, protocol, dict(metadata or {}))
    with shown(progress, "validating") as progress:
        report = _validated(model, task, circuit, settings, progress)
        while report.more_examples_could_decide and settings.n_examples < max_examples:
            settings = replace(settings, n_examples=min(4 * settings.n_examples, max_examples))
            report = _validated(model, task, circuit, settings, progress)
    return report


def _validated(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    settings: Settings,
    progress: Callable[[float], None],
) -> ValidationReport:
    if not circuit.heads:
        raise BadInput("the circuit names no head; there is nothing to validate")
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    seed, threshold, device = settings.seed, settings.threshold, next(model.parameters()).device
    sample = Sample(task, settings.n_examples, stream_seed(seed, STREAM), device)
    circuit.check(sample.roles, n_layers, n_heads)

    test = SequentialTest(model, task, sample, threshold)
    unablated, combined = test.measure([Circuit(), circuit], progress=part_of(progress, 0.0, 0.3))
    heads = each_head_alone(test, circuit)
    progress(0.5)
    up_to_layer = {layer: circuit.up_to(layer) for layer in range(n_layers)}
    up_to = [decided.loss for decided in test.test(up_to_layer).values()]
    progress(0.6)
    strict = test.with_threshold(strict_threshold(unablated, combined, threshold))
    paths = removals(test, strict, circuit, combined, up_to)
    merged = merges(strict, circuit, paths) if combined.mean < threshold else ()
    content = content_or_position(
        model,
        task,
        n_examples=min(settings.n_examples, CONTENT_EXAMPLES),
        threshold=threshold,
        seed=seed,
        stream=f"{STREAM} of content",
        progress=part_of(progress, 0.7, 0.8),
    )
    faithful = faithfulness(test, circuit, content.means)
    paper = paper_protocol(test, circuit)
    progress(1.0)
    report = ValidationReport(
        circuit=circuit,
        threshold=threshold,
        strict_threshold=strict.threshold,
        n_examples=settings.n_examples,
        seed=seed,
        roles=task.roles,
        unablated=unablated,
        combined=combined,
        up_to=tuple(up_to),
        heads=heads,
        paths=paths,
        merges=merged,
        verdicts=(),
        content_or_position=content,
        faithfulness=faithful,
        paper=paper,
        protocol=settings.protocol,
        attention=role_attention(model, sample.take(slice(0, ATTENTION_EXAMPLES))).cpu(),
        flow_check=flow_check(circuit, task),
        metadata=settings.metadata,
        model=model,
        task=task,
    )
    return replace(report, verdicts=verdicts(report))
