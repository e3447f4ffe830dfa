"""Content or position: which heads attend by content, and which by position only.

Pattern-mean ablation replaces a head's attention pattern with its average over examples, which depends on positions
only. If the loss stays low, the head is a positional head; if the loss rises, it is a content head. The distinction
rests on the loss: a positional head may still look at content that the loss hardly needs.
"""

from collections.abc import Mapping

from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.results import Result
from circuits.settings import current
from circuits.utils.progress import Progress


class ContentOrPosition(Result):
    """The content heads and the positional heads of a model.

    Attributes:
        unablated: the loss of the unablated model.
        alone: for every head, the loss with only this head replaced with its average.
        positional: the heads that can all be replaced with their averages at once, with the loss below the threshold.
        content: all other heads.
        together: the loss with all positional heads replaced with their averages.
        threshold: a loss below it counts as low.
        n_evaluations: the number of sequences that were run.
    """

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


def content_or_position(
    test: SequentialTest, means: Mapping[Head, FixedPattern], progress: Progress = lambda share: None
) -> ContentOrPosition:
    """Tell content heads from positional heads.

    A head is a content head if the loss reaches the threshold when the head alone is replaced with its average. All
    other heads are then replaced together. While that loss is not below the threshold, the head whose un-ablation
    lowers the loss most becomes a content head, too.

    Args:
        test: the sequential test of the model; a head alone takes fewer examples if they decide.
        means: every head's average pattern (``circuits.averages``), over examples that are not in the test.
        progress: is called with the finished share, 0 to 1.
    """
    (unablated,) = test.measure([Circuit()])
    single = {head: Circuit({head: mean}) for head, mean in means.items()}
    decided = test.test(single, min_examples=current().enough, progress=lambda share: progress(share / 2))
    alone = {head: one.loss for head, one in decided.items()}
    content = {head for head, loss in alone.items() if loss.mean >= test.threshold}
    (together,) = test.measure([Circuit(means).without_heads(content)])
    while together.mean >= test.threshold and len(content) < len(means):
        rest = [head for head in means if head not in content]
        fewer = test.measure([Circuit(means).without_heads({*content, head}) for head in rest])
        together, best = min(zip(fewer, rest, strict=True), key=lambda one: one[0].mean)
        content.add(best)
        progress(0.5 + 0.5 * len(content) / len(means))
    progress(1.0)
    return ContentOrPosition(
        unablated=unablated,
        alone=alone,
        positional=tuple(head for head in means if head not in content),
        content=tuple(sorted(content)),
        together=together,
        threshold=test.threshold,
        n_evaluations=test.n_evaluations,
    )
