"""Content or position: which heads attend by content, and which by position only.

Pattern-mean ablation replaces a head's attention pattern with its average over examples, which depends on positions
only. If the loss stays low, the head is a positional head; if the loss rises, it is a content head. The distinction
rests on the loss: a positional head may still look at content that the loss hardly needs.
"""

from collections.abc import Mapping

from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.results import Result
from circuits.settings import current
from circuits.utils.progress import Progress


class ContentOrPosition(Result):
    """The heads of a model: idle, positional, or looking at content.

    Attributes:
        unablated: the loss of the unablated model.
        alone: for every head that is not idle, the loss with only this head replaced with its average pattern.
        positional: the heads that can all be replaced with their average patterns at once, with the loss low.
        content: all others that are not idle.
        together: the loss with all positional heads replaced with their average patterns, and the idle heads idle.
        threshold: an excess below this share of the range counts as low.
        n_evaluations: the number of sequences that were run.
    """

    unablated: Loss
    alone: dict[Head, DecidedLoss]
    positional: tuple[Head, ...]
    content: tuple[Head, ...]
    together: DecidedLoss
    threshold: float
    n_evaluations: int

    def looks_at(self, head: Head) -> str:
        """Return what a head looks at: ``content``, ``position``, or ``nothing`` if it is idle."""
        return "content" if head in self.content else "position" if head in self.positional else "nothing"


def content_or_position(
    test: SequentialTest, means: Mapping[Head, FixedPattern], idle: Circuit, progress: Progress = lambda share: None
) -> ContentOrPosition:
    """Tell content heads from positional heads.

    A head is a content head if the loss is not low when the head alone is replaced with its average pattern. All other
    heads are then replaced together. While that loss is not low, the head whose un-ablation lowers the loss most
    becomes a content head, too.

    Args:
        test: the sequential test of the model; a head alone takes fewer examples if they decide.
        means: the average patterns (``circuits.averages``) of all heads that are not idle, over other examples.
        idle: the idle heads, which stay idle while heads are replaced together.
        progress: is called with the finished share, 0 to 1.
    """
    enough = current().enough
    alone = test.test({head: Circuit({head: mean}) for head, mean in means.items()})
    progress(0.5)
    content = {head for head, one in alone.items() if test.size(one) >= test.threshold}

    def fixed(content: set[Head]) -> Circuit:
        return Circuit({**idle.heads, **means}).without_heads(content)

    together = test.test({None: fixed(content)}, min_examples=enough)[None]
    while test.size(together) >= test.threshold and len(content) < len(means):
        rest = [head for head in means if head not in content]
        fewer = test.test({head: fixed({*content, head}) for head in rest}, min_examples=enough, max_examples=enough)
        best = min(rest, key=lambda head: test.size(fewer[head]))
        together = fewer[best]
        content.add(best)
        progress(0.5 + 0.5 * len(content) / len(means))
    progress(1.0)
    (unablated,) = test.measure([Circuit()], enough)
    return ContentOrPosition(
        unablated=unablated,
        alone=alone,
        positional=tuple(head for head in means if head not in content),
        content=tuple(sorted(content)),
        together=together,
        threshold=test.threshold,
        n_evaluations=test.n_evaluations,
    )
