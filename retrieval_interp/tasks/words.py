"""Small language models that do one language task: its prompts, in a vocabulary of a few dozen words.

The vocabulary of ``ioi`` is the words of its prompts, that of ``induction`` 64 variables: ``a``, ``b``, ..., ``a2``...
Training asks for the right answer at the end of every prompt, among all words. The prompts are in ``language_tasks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from jaxtyping import Float

from circuits.task import Examples, Layout
from circuits.utils.lazy import torch
from retrieval_interp.language_tasks import ioi
from retrieval_interp.language_tasks.language_task import END, LanguageTask, TokenAnswers, at_end
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.language_tasks.template import UNKNOWN
from retrieval_interp.prompts.words import VARIABLES, word
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.task import TrainableTask

N_VARIABLES = 64
ANSWER = "answer"


class Kind(StrEnum):
    """The language tasks that small models are trained on."""

    induction = "induction"
    ioi = "ioi"


INDUCTION = Layout(
    {"earlier": frozenset({"token", "place"}), "next": frozenset({ANSWER, "place"}), END: frozenset({"token"})},
    frozenset({"place"}),
)


@dataclass(frozen=True)
class WordsTask(TokenAnswers, TrainableTask):
    """The prompts of a language task, to train a small model on; a ``circuits.Task``.

    Attributes:
        kind: the language task.
    """

    kind: Kind = Kind.induction

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary."""
        known = ioi.words() if self.kind == Kind.ioi else tuple(word(VARIABLES, i) for i in range(N_VARIABLES))
        return (*known, UNKNOWN)

    @cached_property
    def task(self) -> LanguageTask:
        """The language task."""
        return language_task(self.kind, self.tokenizer)

    @property
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""
        return {
            Kind.induction: f"repeated tokens, from a vocabulary of {N_VARIABLES}",
            Kind.ioi: f"indirect object identification, with {len(ioi.NAMES)} names",
        }[self.kind]

    @cached_property
    def n_positions(self) -> int:
        """The length of the longest prompt."""
        return self.task.examples(1, 0).inputs.shape[1]

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the language task."""
        return self.task.roles

    @property
    def loss_components(self) -> tuple[str, ...]:
        """``answer``."""
        return (ANSWER,)

    @property
    def read_at(self) -> dict[str, str]:
        """The role at which the answer is read."""
        return {ANSWER: END}

    @property
    def layout(self) -> Layout:
        """What each role knows at the start; AttributeError of ioi."""
        if self.kind == Kind.ioi:  # it takes exclusion, which is no information flow: "end" shares nothing with IO
            raise AttributeError("ioi has no layout")
        return INDUCTION

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts for evaluation."""
        return self.task.examples(n, seed)

    def draw(self, n: int, stream: RngStream, seed: int) -> Examples:
        """Draw ``n`` prompts."""
        return self.task.draw(n, stream.generator(seed))

    def assemble(self, draws: Examples) -> Examples:
        """Return the prompts, which are drawn as a whole."""
        return draws

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the probability of any answer but the right one, averaged over the instances."""
        chances = at_end(outputs, examples).softmax(dim=-1)
        return 1 - chances.gather(2, examples.targets[:, :, 0]).mean(dim=1)

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """Return the cross-entropy of the right answer, averaged over the instances."""
        chances = at_end(outputs, examples).log_softmax(dim=-1)
        return -chances.gather(2, examples.targets[:, :, 0]).mean(dim=1)
