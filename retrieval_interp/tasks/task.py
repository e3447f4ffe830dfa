"""TrainableTask: the base class of all tasks that models are trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from jaxtyping import Float, Int

from circuits.errors import whole
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch, transformers
from retrieval_interp.language_tasks.template import word_tokenizer
from retrieval_interp.rng import RngStream

Raw = TypeVar("Raw", bound="RawBatch")


@dataclass(frozen=True)
class RawBatch:
    """The random choices of a batch of examples, in compact form: tensors with one row per example."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self: Raw, index: Int[torch.Tensor, " n"]) -> Raw:
        """Return some of the examples, in the order of ``index``."""
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self: Raw, device: torch.device | str) -> Raw:
        """Return the same raw batch on another device."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))


class TrainableTask(ABC):
    """A ``circuits.Task`` that models are trained on; a frozen dataclass.

    Attributes:
        loss_name: the name of the loss, such as ``mean squared error``.
    """

    loss_name: str = "probability of a wrong answer"

    def check(self, name: str, least: int, most: int) -> None:
        """Check that a field is in range; BadInput if the field is out of range."""
        object.__setattr__(self, name, whole(name, getattr(self, name), least, most))

    @property
    @abstractmethod
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""

    @property
    def asked(self) -> str:
        """The symbols asked for, in short: ``x1 ... x3``."""
        return " ... ".join(dict.fromkeys((self.loss_components[0], self.loss_components[-1])))

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary, every word one token; empty for a task on vectors."""
        return ()

    @cached_property
    def tokenizer(self) -> transformers.PreTrainedTokenizerFast | None:
        """The tokenizer, with one token per word and punctuation mark; None for a task on vectors."""
        return word_tokenizer(self.words) if self.words else None

    @property
    @abstractmethod
    def n_positions(self) -> int:
        """The length of the longest sequence."""

    @property
    def d_input(self) -> int:
        """The size of the vocabulary, or the width of an input vector."""
        return len(self.words)

    @property
    def d_output(self) -> int:
        """The width of the model's output at one position."""
        return len(self.words)

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """The names of the roles."""

    @property
    @abstractmethod
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with its own partial loss."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What each role of one chain knows at the start, for information flow."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """The role at which each loss component is read."""
        return dict.fromkeys(self.loss_components, "query")

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The roles at which the answers are read."""
        return tuple(dict.fromkeys(self.read_at.values()))

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` examples for evaluation, independent of every training set, whatever the seeds."""
        return self.assemble(self.draw(whole("the number of examples", n, 1), RngStream.EVALUATION, seed))

    @abstractmethod
    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the partial losses of every example."""

    def training_set(self, size: int, seed: int) -> RawBatch | Examples:
        """Return a fixed training set, from which ``assemble`` makes batches."""
        return self.draw(size, RngStream.TRAINING, seed)

    @abstractmethod
    def draw(self, n: int, stream: RngStream, seed: int) -> RawBatch | Examples:
        """Draw ``n`` examples."""

    @abstractmethod
    def assemble(self, draws: Any) -> Examples:
        """Return the examples of a raw batch."""

    @property
    def trained_components(self) -> tuple[str, ...]:
        """The names of the training losses; the loss components, unless training has its own targets."""
        return self.loss_components

    @property
    def trained_positions(self) -> slice:
        """The positions whose outputs the training losses need; a training pass may return these alone."""
        return slice(None)

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """Return the training losses of every example; ``losses``, unless training has its own targets.

        The outputs may be those at ``trained_positions`` alone.
        """
        return self.losses(outputs, examples)
