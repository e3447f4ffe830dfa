"""What a model can be trained on, whatever it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from jaxtyping import Float, Int

from circuits.errors import check_size
from circuits.flow.layout import Layout
from circuits.problem import Examples
from circuits.utils.lazy import torch, transformers
from retrieval_interp.rng import RngStream

Raw = TypeVar("Raw", bound="RawBatch")


@dataclass(frozen=True)
class RawBatch:
    """What chance decides of examples, in the smallest form: tensors with a row for each of them."""

    def __len__(self) -> int:
        return len(self._tensors()[0])

    def take(self: Raw, index: Int[torch.Tensor, " n"]) -> Raw:
        """Some of the examples, in the order of ``index``."""
        return type(self)(*(tensor[index] for tensor in self._tensors()))

    def to(self: Raw, device: torch.device | str) -> Raw:
        """The same draws on another device."""
        return type(self)(*(tensor.to(device) for tensor in self._tensors()))

    def _tensors(self) -> list[torch.Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


class Task(ABC):
    """A ``circuits.Problem`` that models are trained on; a frozen dataclass.

    Attributes:
        loss_name: what the losses are, in words.
    """

    loss_name: str

    def check(self, name: str, least: int, most: int) -> None:
        """Refuse a field that is out of range.

        Raises:
            BadInput: it is.
        """
        check_size(name, getattr(self, name), least, most)

    @property
    @abstractmethod
    def sentence(self) -> str:
        """What is asked, in words that follow on from "trained on"."""

    @property
    def asked(self) -> str:
        """The symbols asked for, in short: ``x1 ... x3``."""
        return " ... ".join(dict.fromkeys((self.loss_components[0], self.loss_components[-1])))

    @property
    def tokenizer(self) -> transformers.PreTrainedTokenizerBase | None:
        """What makes tokens of texts; None where vectors are read."""
        return None

    @property
    @abstractmethod
    def n_positions(self) -> int:
        """Length of the longest sequence."""

    @property
    @abstractmethod
    def d_input(self) -> int:
        """Width of an input vector, or number of tokens."""

    @property
    @abstractmethod
    def d_output(self) -> int:
        """Width of the answer at one position."""

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """The names of the roles."""

    @property
    @abstractmethod
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with a partial loss of its own."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What each role of one chain starts with, for information flow."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every part the role at which it is read."""
        return dict.fromkeys(self.loss_components, "query")

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The roles at which the answers are read."""
        return tuple(dict.fromkeys(self.read_at.values()))

    @abstractmethod
    def examples(self, n: int, seed: int) -> Examples:
        """``n`` examples for evaluation, drawn apart from every training set, whatever the seeds."""

    @abstractmethod
    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """The partial losses of every example."""

    def training_set(self, size: int, seed: int) -> RawBatch:
        """A fixed training set; ``assemble`` makes batches of it."""
        return self.draw(size, RngStream.TRAINING, seed)

    @abstractmethod
    def draw(self, n: int, stream: RngStream, seed: int) -> RawBatch:
        """Draw ``n`` examples."""

    @abstractmethod
    def assemble(self, draws: Any) -> Examples:
        """The examples of these draws."""

    @property
    def trained_components(self) -> tuple[str, ...]:
        """The names of what training makes small; ``components``, unless it has targets of its own."""
        return self.loss_components

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """What training makes small, for every example; ``losses``, unless it has targets of its own."""
        return self.losses(outputs, examples)
