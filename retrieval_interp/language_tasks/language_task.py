"""Language tasks: prompts with right and wrong answers, clean and counterfactual."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from circuits.errors import BadInput, whole
from circuits.task import Answer, Examples
from circuits.utils.lazy import torch, transformers
from circuits.utils.tokens import visible
from retrieval_interp.language_tasks.template import token_ids
from retrieval_interp.rng import RngStream

END = "end"  # the role at which the answer is read
NONE = -1  # in targets: no token


class Metric(StrEnum):
    """What is measured at the end of a prompt (metric.py)."""

    kl = "kl"
    logit_difference = "logit_difference"
    probability = "probability"


MOST_PROMPTS = 2**20


@dataclass(frozen=True)
class LanguageTask(ABC):
    """Prompts of one kind for one tokenizer.

    The targets of its examples are tokens, ``[batch, instance, 2, choice]``: first the right ones, then the wrong ones,
    filled up with ``NONE``. The counterfactual prompts have the same length and roles, but not what the answer takes.

    Attributes:
        tokenizer: the tokenizer of the model; a fast one.
        bos: what stands before every prompt: ``default``, what the tokenizer puts there, ``none``, or a token.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    metric: ClassVar[Metric] = Metric.kl  # by default
    tokenizer: transformers.PreTrainedTokenizerBase
    bos: str = "default"

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts; the same seed gives the same prompts.

        Raises:
            BadInput: ``n`` or the seed is out of range, or the tokenizer does not have what the task takes.
        """
        n = whole("the number of examples", n, 1, MOST_PROMPTS)
        return self.draw(n, RngStream.EVALUATION.generator(seed))

    def shown(self, seed: int = 0) -> str:
        """Return one prompt as its tokens, each with its roles: ``Today| Mary[IO]| and| John[S1]``."""
        one = self.examples(1, seed)
        labels, there = one.roles.labels(0, one.inputs.shape[1]), one.roles.tokens(one.inputs.shape[1])[0]
        if one.roles.positions.shape[2] == 1:
            labels = [label.replace("1:", "") for label in labels]
        tokens = (
            self.tokenizer.decode([number]) + (f"[{label}]" if not label.isdecimal() else "")
            for number, label, valid in zip(one.inputs[0].tolist(), labels, there.tolist(), strict=True)
            if valid
        )
        return "|".join(tokens).replace("\n", "⏎")

    def single_tokens(self, what: str, words: Iterable[str], before: str, least: int = 2) -> dict[str, int]:
        """Return the words that are one token after a text, with this token.

        Args:
            what: what the words are, for messages, such as ``names``.
            words: the words.
            before: the text before each word, with a space if there is one.
            least: the number of words that are needed.

        Raises:
            BadInput: there are fewer.
        """
        single, left_out = {}, []
        start = token_ids(self.tokenizer, before.rstrip(), bos=self.bos)[0]
        for word in words:
            try:
                ids = token_ids(self.tokenizer, before + word, bos=self.bos)[0]
            except BadInput:  # the tokenizer does not know it
                ids = []
            if ids[:-1] == start:
                single[word] = ids[-1]
            else:
                left_out.append(word)
        if len(single) < least:
            counted = f"{len(single)} are one token in this tokenizer ({', '.join(left_out[:3])} are not)"
            raise BadInput(f"the {what} of {self.name}: {counted}; expected {least}")
        return single

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts.

        Raises:
            BadInput: the tokenizer does not have what the task takes, such as words of one token.
        """


class TokenAnswers:
    """A task whose answers are tokens, in words (``circuits.task.Told``). It has a tokenizer and one output role."""

    unit: ClassVar[str] = "probability"

    def texts(self: Any, examples: Examples) -> list[list[str]]:
        """Return the text of every token."""
        return [[visible(self.tokenizer, token) for token in row] for row in examples.inputs.tolist()]

    def right(self: Any, examples: Examples) -> list[list[str]]:
        """Return the right token of every instance; of many, three and the number of the others."""
        text = partial(visible, self.tokenizer)
        return [
            [_listed([text(token) for token in one if token != NONE]) for one in row]
            for row in _right(examples).tolist()
        ]

    def said(
        self: Any, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> list[list[list[Answer]]]:
        """Return the three most likely answers of every instance; the right ones are the first of the targets."""
        (role,) = self.output_roles
        chances = exact(at_end(outputs, examples, role)).softmax(dim=-1)
        shares, tokens = chances.topk(min(3, outputs.shape[-1]))
        hits = (tokens[..., None] == _right(examples)[:, :, None]).any(dim=3)
        rows = zip(tokens.tolist(), shares.tolist(), hits.tolist(), strict=True)
        text = partial(visible, self.tokenizer)
        return [[[*zip(map(text, one), p, hit, strict=True)] for one, p, hit in zip(*row, strict=True)] for row in rows]


def _listed(words: list[str]) -> str:
    return ", ".join(words[:3]) + (f" or one of {len(words) - 3} others" if len(words) > 3 else "")


def _right(examples: Examples) -> Int[torch.Tensor, "batch instance choice"]:
    targets: torch.Tensor = examples.targets
    return targets[:, :, 0] if targets.ndim > 1 else targets[:, None, None]


def exact(logits: torch.Tensor) -> torch.Tensor:
    """Return logits in single precision at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def answers(
    right: Int[torch.Tensor, "*shape"], wrong: Int[torch.Tensor, "*shape"]
) -> Int[torch.Tensor, "batch instance 2 choice"]:
    """Return targets from right and wrong tokens, ``[batch]``, ``[batch, instance]`` or with choices."""
    both = torch.stack([right.reshape(len(right), -1), wrong.reshape(len(wrong), -1)], dim=2)
    return both[..., None]


def drawn(
    rng: np.random.Generator,
    tokens: Iterable[int],
    n: int,
    each: int = 1,
    but: Int[torch.Tensor, "n other"] | None = None,
) -> tuple[Int[torch.Tensor, " n"], ...]:
    """Draw ``each`` different tokens, ``n`` times, and none of those in the same row of ``but``."""
    all_tokens = torch.tensor([*tokens])
    key = rng.random((n, len(all_tokens)))
    if but is not None:
        key[(all_tokens[:, None] == but[:, None]).any(dim=2).numpy()] = np.inf
    order = key.argpartition(each - 1, axis=1)[:, :each]
    return all_tokens[torch.from_numpy(rng.permuted(order, axis=1))].unbind(dim=1)


def at_end(
    outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples, role: str = END
) -> Float[torch.Tensor, "batch instance d_out"]:
    """Return the outputs at which the answers are read."""
    example = torch.arange(len(examples), device=outputs.device)[:, None]
    return outputs[example, examples.roles[role]]
