"""Content or position: which heads attend by content, and which by position only.

Mean ablation replaces a head's attention pattern with its average over examples, which depends on positions only. If
the loss stays low, the head is a positional head; if the loss rises, it is a content head. The distinction rests on the
loss: a positional head may still look at content that the loss hardly needs.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from circuits.attention import position_attention
from circuits.circuit import Circuit, Head
from circuits.entrance import entrance
from circuits.given import examples_of
from circuits.losses.loss import Loss
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import ENOUGH, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.model.transformer import Transformer
from circuits.results import Result
from circuits.task import Examples, Task
from circuits.utils.progress import Progress, part_of, shown

MEAN_EXAMPLES = 1024  # examples in a head's average pattern, unless told otherwise


class ContentOrPosition(Result):
    """The content heads and the positional heads of a model, with the losses under mean ablation.

    Attributes:
        means: every head's average attention pattern.
        unablated: the loss of the unablated model.
        alone: for every head, the loss with only this head replaced with its average.
        positional: the heads that can all be replaced with their averages at once, with the loss below the threshold.
        content: all other heads.
        together: the loss with all positional heads replaced with their averages.
        threshold: the threshold; a loss below it counts as low.
        n_evaluations: the number of sequences that were run.
    """

    means: dict[Head, Any] = Field(default_factory=dict, exclude=True)  # of FixedPattern; in memory only
    unablated: Loss
    alone: dict[Head, Loss]
    positional: tuple[Head, ...]
    content: tuple[Head, ...]
    together: Loss
    threshold: float
    n_evaluations: int

    def looks_at(self, head: Head) -> str:
        """Return what a head looks at: ``content`` or ``position``."""
        return "content" if head in self.content else "position"

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers; docs/reports.md explains every key."""
        return {
            "heads": {
                str(head): {"looks_at": self.looks_at(head), "mean_alone": loss.to_json()}
                for head, loss in self.alone.items()
            },
            "content_intact": {"heads": [*map(str, self.content)], "loss": self.together.to_json()},
        }


def mean_examples(model: Transformer, task: Task, seed: int = 0, n_examples: int = MEAN_EXAMPLES) -> Examples:
    """Return the examples that patterns are averaged over, from an rng stream of their own."""
    return examples_of(task, n_examples, stream_seed(seed, "means"), next(model.parameters()).device)


@entrance
def mean_patterns(
    model: Transformer, task: Task, seed: int = 0, n_examples: int = MEAN_EXAMPLES
) -> dict[Head, FixedPattern]:
    """Return every head's average attention pattern, over examples from an rng stream of their own.

    Raises:
        BadInput: the seed or the number of examples cannot be used.
    """
    average = position_attention(model, mean_examples(model, task, seed, n_examples))
    heads = [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]
    return {head: FixedPattern(average[head.layer, head.index], "mean") for head in heads}


def each_alone(
    test: SequentialTest, means: Mapping[Head, FixedPattern], progress: Progress = lambda share: None
) -> dict[Head, Loss]:
    """Return the loss with each head alone replaced with its average.

    A loss is measured on at least ``ENOUGH`` examples, and on more only while it is close to the threshold.

    Args:
        test: the sequential test of the model.
        means: every head's average pattern.
        progress: is called with the finished share, 0 to 1.
    """
    single = {head: Circuit({head: mean}) for head, mean in means.items()}
    decided = test.test(single, min_examples=ENOUGH, progress=progress)
    return {head: one.loss for head, one in decided.items()}


@entrance
def content_or_position(
    model: Transformer,
    task: Task,
    *,
    n_examples: int = 512,
    threshold: float = 0.05,
    seed: int = 0,
    stream: str = "content",
    mean_over: int = MEAN_EXAMPLES,
    progress: Progress | None = None,
) -> ContentOrPosition:
    """Tell content heads from positional heads.

    A head is a content head if the loss reaches the threshold when the head alone is replaced with its average. All
    other heads are then replaced together. While that loss is not below the threshold, the head whose un-ablation
    lowers the loss most becomes a content head, too.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task; all examples have the same length.
        n_examples: the number of examples; a head alone takes fewer if they decide.
        threshold: a loss below it counts as low; the paper uses 0.05.
        seed: the seed of all examples.
        stream: the name of the rng stream of the examples that losses are measured on; another name gives other
            examples with the same seed.
        mean_over: the number of examples that patterns are averaged over; no loss is measured on them.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: a number is out of range.
    """
    sample = Sample(task, n_examples, stream_seed(seed, stream), next(model.parameters()).device)
    test = SequentialTest(model, task, sample, threshold)
    with shown(progress, "content or position") as progress:
        means = mean_patterns(model, task, seed, mean_over)
        (unablated,) = test.measure([Circuit()])
        alone = each_alone(test, means, part_of(progress, 0.0, 0.5))
        content = {head for head, loss in alone.items() if loss.mean >= threshold}
        (together,) = test.measure([Circuit(means).without_heads(content)])
        while together.mean >= threshold and len(content) < len(means):
            rest = [head for head in means if head not in content]
            without = [Circuit(means).without_heads({*content, head}) for head in rest]
            fewer = dict(zip(rest, test.measure(without), strict=True))
            best = min(rest, key=lambda head: fewer[head].mean)
            content.add(best)
            together = fewer[best]
            progress(0.5 + 0.5 * len(content) / len(means))
        progress(1.0)
    positional = tuple(head for head in means if head not in content)
    return ContentOrPosition(
        means=means,
        unablated=unablated,
        alone=alone,
        positional=positional,
        content=tuple(sorted(content)),
        together=together,
        threshold=threshold,
        n_evaluations=test.n_evaluations,
    )
