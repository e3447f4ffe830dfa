"""Language tasks: prompts with right and wrong answers, clean and counterfactual."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from circuits.errors import whole
from circuits.task import Examples
from circuits.utils.lazy import torch, transformers
from retrieval_interp.rng import RngStream

END = "end"  # the role at which the answer is read
NONE = -1  # in targets: no token
MOST_PROMPTS = 2**20


@dataclass(frozen=True)
class LanguageTask(ABC):
    """Prompts of one kind for one tokenizer.

    The targets of its examples are tokens, ``[batch, instance, 2, choice]``: first the right ones, then the wrong ones,
    filled up with ``NONE``. The counterfactual prompts have the same length and roles, but not what the answer takes.

    Attributes:
        tokenizer: the tokenizer of the model; a fast one.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    tokenizer: transformers.PreTrainedTokenizerBase

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts; the same seed gives the same prompts.

        Raises:
            BadInput: ``n`` or the seed is out of range, or the tokenizer does not have what the task takes.
        """
        n = whole("the number of examples", n, 1, MOST_PROMPTS)
        return self.draw(n, RngStream.EVALUATION.generator(seed))

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts.

        Raises:
            BadInput: the tokenizer does not have what the task takes, such as words of one token.
        """


def answers(
    right: Int[torch.Tensor, "*shape"], wrong: Int[torch.Tensor, "*shape"]
) -> Int[torch.Tensor, "batch instance 2 choice"]:
    """Return targets from right and wrong tokens, ``[batch]``, ``[batch, instance]`` or with choices."""
    both = torch.stack([right.reshape(len(right), -1), wrong.reshape(len(wrong), -1)], dim=2)
    return both[..., None]


def drawn(
    rng: np.random.Generator,
    tokens: Sequence[int],
    n: int,
    each: int,
    but: Int[torch.Tensor, "n other"] | None = None,
) -> Int[torch.Tensor, "n each"]:
    """Draw ``each`` different tokens, ``n`` times, and none of those in the same row of ``but``."""
    own, key = torch.tensor([*tokens]), rng.random((n, len(tokens)))
    if but is not None:
        key[(own[:, None] == but[:, None]).any(dim=2).numpy()] = np.inf
    order = key.argpartition(each - 1, axis=1)[:, :each]
    return own[torch.from_numpy(rng.permuted(order, axis=1))]


def at_end(
    outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
) -> Float[torch.Tensor, "batch instance d_out"]:
    """Return the outputs at which the answers are read."""
    example = torch.arange(len(examples), device=outputs.device)[:, None]
    return outputs[example, examples.roles[END]]
