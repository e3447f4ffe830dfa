"""Content or position: which heads look at what stands somewhere, and which only at where it stands.

A head whose attention pattern may be replaced by its average over examples is called a positional head: its average
knows positions and nothing else. Where that lifts the loss, the head follows the content: it is a content head. This is
said of what the loss shows; a head may look at content that the loss hardly needs. To replace a pattern by its average
is the field's mean ablation.
"""

from dataclasses import dataclass
from typing import Any

from transformer_lens import HookedTransformer

from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.model.attention import position_attention
from circuits.problem import Examples, Problem
from circuits.utils.progress import Progress, part_of, shown

MEAN_EXAMPLES = 1024  # that a head's average pattern is of


@dataclass(frozen=True)
class ContentOrPosition:
    """What every head's average pattern does in its place.

    Attributes:
        means: every head's average attention pattern.
        unablated: the model's own loss.
        alone: the loss with this head's pattern replaced by its average, and no other.
        positional: heads that are all replaced together with the loss below the threshold.
        content: the others.
        together: the loss with all positional heads replaced.
        threshold: a loss below it counts as low.
        n_evaluations: sequences that were run to tell.
    """

    means: dict[Head, FixedPattern]
    unablated: Loss
    alone: dict[Head, Loss]
    positional: tuple[Head, ...]
    content: tuple[Head, ...]
    together: Loss
    threshold: float
    n_evaluations: int

    def looks_at(self, head: Head) -> str:
        """What a head looks at: ``content`` or ``position``."""
        return "content" if head in self.content else "position"

    def to_json(self) -> dict[str, Any]:
        """As plain numbers; docs/reports.md says what each key holds."""
        return {
            "heads": {
                str(head): {"looks_at": self.looks_at(head), "mean_alone": loss.to_json()}
                for head, loss in self.alone.items()
            },
            "content_intact": {"heads": [*map(str, self.content)], "loss": self.together.to_json()},
        }


def mean_examples(model: HookedTransformer, problem: Problem, seed: int = 0) -> Examples:
    """The examples that patterns are averaged over, of a stream that nothing else draws from."""
    return problem.examples(MEAN_EXAMPLES, stream_seed(seed, "means")).to(next(model.parameters()).device)


def mean_patterns(model: HookedTransformer, problem: Problem, seed: int = 0) -> dict[Head, FixedPattern]:
    """Every head's average attention pattern.

    Raises:
        BadInput: the seed cannot be used.
    """
    average = position_attention(model, mean_examples(model, problem, seed))
    heads = [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]
    return {head: FixedPattern(average[head.layer, head.index], "mean") for head in heads}


def content_or_position(
    model: HookedTransformer,
    problem: Problem,
    *,
    n_examples: int = 512,
    threshold: float = 0.05,
    seed: int = 0,
    stream: str = "content",
    progress: Progress | None = None,
) -> ContentOrPosition:
    """Tell content heads from positional ones.

    Heads whose average alone lifts the loss to the threshold are content heads. Of the others those that bring the
    loss down most become content heads too, one after the other, until all that are left can be replaced together.

    Args:
        model: any HookedTransformer without padding.
        problem: its task; all examples have the same length.
        n_examples: that each loss is measured on.
        threshold: a loss below it counts as low; the paper takes 0.05.
        seed: of the examples, and of those that are averaged.
        stream: of the examples that each loss is measured on; another name gives others with the same seed.
        progress: is called with the finished share, 0 to 1. Without it a bar is shown, in a notebook or a terminal.

    Raises:
        BadInput: a number is out of range.
    """
    sample = Sample(problem, n_examples, stream_seed(seed, stream), next(model.parameters()).device)
    test = SequentialTest(model, problem, sample, threshold)
    with shown(progress, "content or position") as progress:
        means = mean_patterns(model, problem, seed)
        single = [Circuit({head: mean}) for head, mean in means.items()]
        unablated, *losses = test.measure([Circuit(), *single], progress=part_of(progress, 0.0, 0.5))
        alone = dict(zip(means, losses, strict=True))
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
        means, unablated, alone, positional, tuple(sorted(content)), together, threshold, test.n_evaluations
    )
