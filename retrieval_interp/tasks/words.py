"""Small language models that do one language task: its prompts, in a vocabulary of a few dozen words.

The vocabulary of ``ioi`` is the words of its prompts, that of ``induction`` 64 variables: ``a``, ``b``, ..., ``a2``...
Training asks for the right answer at the end of every prompt, among all words. The prompts are in ``language_tasks``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from jaxtyping import Bool, Float, Int

from circuits.roles import Roles
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch, transformers
from retrieval_interp.language_tasks import ioi
from retrieval_interp.language_tasks.language_task import END, LanguageTask, at_end
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.language_tasks.template import UNKNOWN, word_tokenizer
from retrieval_interp.prompts.words import VARIABLES, word
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.task import RawBatch, TrainableTask

N_VARIABLES = 64
ANSWER = "answer"


class Kind(StrEnum):
    """The language tasks that small models are trained on."""

    induction = "induction"
    ioi = "ioi"


LAYOUTS = {  # ioi takes exclusion, which information flow cannot represent: "end" shares nothing with IO
    Kind.induction: Layout(
        {"first": frozenset({"token", "place"}), "next": frozenset({ANSWER, "place"}), END: frozenset({"token"})},
        frozenset({"place"}),
    ),
    Kind.ioi: Layout(
        {
            "IO": frozenset({ANSWER}),
            "S1": frozenset({"subject", "place"}),
            "S1+1": frozenset({"place"}),
            "S2": frozenset({"subject"}),
            END: frozenset(),
        },
        frozenset({"place"}),
    ),
}


@dataclass(frozen=True)
class Prompts(RawBatch):
    """A raw batch of prompts: the parts of their examples."""

    inputs: Int[torch.Tensor, "batch pos"]
    targets: Int[torch.Tensor, "batch instance 2 choice"]
    positions: Int[torch.Tensor, "batch role instance"]
    templates: Int[torch.Tensor, "batch role instance"]
    valid: Bool[torch.Tensor, "batch pos"]
    counterfactual: Int[torch.Tensor, "batch pos"]


@dataclass(frozen=True)
class WordsTask(TrainableTask):
    """The prompts of a language task, to train a small model on; a ``circuits.Task``.

    Attributes:
        kind: the language task.
    """

    loss_name = "probability of a wrong answer"

    kind: Kind = Kind.induction

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The vocabulary."""
        own = ioi.words() if self.kind == Kind.ioi else tuple(word(VARIABLES, i) for i in range(N_VARIABLES))
        return (*own, UNKNOWN)

    @cached_property
    def tokenizer(self) -> transformers.PreTrainedTokenizerFast:
        """The tokenizer: one token per word and punctuation mark."""
        return word_tokenizer(self.words)

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
    def d_input(self) -> int:
        """The size of the vocabulary."""
        return len(self.words)

    @property
    def d_output(self) -> int:
        """The size of the vocabulary."""
        return len(self.words)

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
        """What each role knows at the start."""
        return LAYOUTS[self.kind]

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` prompts for evaluation."""
        return self.task.examples(n, seed)

    def draw(self, n: int, stream: RngStream, seed: int) -> Prompts:
        """Draw ``n`` prompts."""
        drawn = self.task.draw(n, stream.generator(seed))
        roles = drawn.roles
        templates = roles.groups.get("template", torch.zeros_like(roles.positions))
        assert drawn.counterfactual is not None  # language tasks have them
        return Prompts(
            drawn.inputs,
            drawn.targets,
            roles.positions,
            templates,
            roles.tokens(drawn.inputs.shape[1]),
            drawn.counterfactual,
        )

    def assemble(self, draws: Prompts) -> Examples:
        """Return the examples of a raw batch."""
        roles = Roles(self.roles, draws.positions, {"template": draws.templates}, draws.valid)
        return Examples(draws.inputs, draws.targets, roles, draws.counterfactual)

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
        found = at_end(outputs, examples).log_softmax(dim=-1)
        return -found.gather(2, examples.targets[:, :, 0]).mean(dim=1)
