"""The presets: the models of the paper, and smaller ones.

transformer_a, _b, _c        section 8.1: 12 layers of one head, D = 3
transformer_d                section 9.1: 24 layers of one head, no MLPs, D = 4
figure4_ic_1 ... _8          section 7.1: 1 to 8 layers of 8 heads, D = 5, implicit curriculum
figure4_nonic_1 ... _8       the same with D = 3, asked for xD alone
laptop_ic_1 ... _6           the same, smaller: width 64, 4 heads, D = 3, 1 to 6 layers; and laptop_nonic_1 ... _6
laptop_growing               no implicit curriculum; D grows during training; 4 layers
laptop_without_x1, _x2       implicit curriculum without x1 or x2; 4 layers
small                        D = 2, six layers of one head, twice as many as needed (studies/census)
medium                       D = 3, eight layers of one head, learned in five minutes (studies/census)
tiny                         D = 2, four layers of one head: learned in about a minute
induction                    D = 1, two layers of one head: the smallest model
one_layer                    D = 1 in one layer, fewer than the bound: eight heads and MLPs suffice
conditional                  the conditional retrieval problem (section 3.1)
equations                    a language model trained on the equation prompts (appendix A.1)
induction_tokens             a language model of 64 words, trained on repeated tokens: two layers of attention only
ioi                          a language model of a few dozen words, trained on indirect object identification
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from circuits.errors import BadInput, whole
from circuits.model.transformer import hooked_transformer
from circuits.utils.lazy import torch
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.registry import describe, task_of
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import TrainableTask
from retrieval_interp.tasks.words import Kind, WordsTask


@dataclass(frozen=True)
class Architecture:
    """The shape of a transformer: pre-LayerNorm, GELU, causal, as in GPT-2.

    Attributes:
        n_layers: the number of layers.
        n_heads: the number of heads per layer.
        d_model: the width of the residual stream.
        d_head: the width of a head.
        mlp: whether every layer has an MLP, of width 4 d_model.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    mlp: bool = True

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "d_model", "d_head"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1, 2**16))
        if not isinstance(self.mlp, bool):
            raise BadInput(f"mlp is {self.mlp!r}; expected true or false")

    def config(
        self, task: TrainableTask, initializer_range: float | None = None
    ) -> hooked_transformer.HookedTransformerConfig:
        """Return the TransformerLens config of this shape for a task, on the CPU in float32.

        Args:
            task: the task of the model.
            initializer_range: the standard deviation of the initial weights; None for TransformerLens's
                0.8/sqrt(d_model).
        """
        return hooked_transformer.HookedTransformerConfig(
            initializer_range=-1.0 if initializer_range is None else initializer_range,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            d_model=self.d_model,
            d_head=self.d_head,
            d_mlp=4 * self.d_model if self.mlp else None,
            attn_only=not self.mlp,
            act_fn="gelu_pytorch_tanh" if self.mlp else None,
            n_ctx=task.n_positions,
            d_vocab=task.d_input,
            d_vocab_out=task.d_output,
            normalization_type="LN",
            device="cpu",
            dtype=torch.float32,
        )


PRECISIONS = ("auto", "float32", "bfloat16")  # of matrix products; auto: bfloat16 if the processor supports it


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of training: AdamW without dropout.

    The defaults are for the small presets; ``GPT`` holds the values of the paper's.

    Attributes:
        steps: the number of training steps.
        batch: the number of sequences per step.
        training_examples: the size of the fixed training set.
        lr: the peak learning rate.
        weight_decay: the decoupled weight decay, on matrices only.
        betas: Adam's decay rates of the first and of the second moment.
        initializer_range: the standard deviation of the initial weights (divided by sqrt(2 layers) for output
            projections); None for 0.8/sqrt(d_model).
        warmup: the number of steps of linear warm-up, at most ``steps``. The default may be more, for trials of a few
            steps.
        decay: the final share of the steps, over which a cosine takes the learning rate to zero.
        max_grad_norm: the norm at which gradients are clipped; None for no clipping.
        precision: the precision of matrix products, one of ``PRECISIONS``; weights and moments are float32.
        checkpoint_every: the number of steps between checkpoints.
        growing: whether to use an explicit curriculum: during the first half of the steps D grows from 1 to the task's
            D in equal intervals, and the chains of the training examples are shortened accordingly.
    """

    steps: int
    batch: int
    training_examples: int
    lr: float = 1e-3
    weight_decay: float = 0.1
    betas: Sequence[float] = (0.9, 0.999)
    initializer_range: float | None = None
    warmup: int = 100
    decay: float = 0.4
    max_grad_norm: float | None = 1.0
    precision: str = "auto"
    checkpoint_every: int = 400
    growing: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "training_examples", "warmup", "checkpoint_every"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0 if name == "warmup" else 1))
        if self.warmup > self.steps and self.warmup != Recipe.warmup:
            raise BadInput(f"warmup is {self.warmup}; expected at most the number of steps, {self.steps}")
        numbers = {"lr": 1e3, "weight_decay": 1e3, "decay": 1.0, "initializer_range": 1e3, "max_grad_norm": 1e6}
        for name, most in numbers.items():
            value = getattr(self, name)
            if value is None and name in ("initializer_range", "max_grad_norm"):
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
                raise BadInput(f"{name} is {value!r}; expected a number from 0 to {most:g}")
            if not value and name not in ("weight_decay", "decay"):
                raise BadInput(f"{name} is {value!r}, with which nothing is learned; expected a number above 0")
        object.__setattr__(self, "betas", tuple(self.betas))  # a list from JSON
        if len(self.betas) != 2 or not all(isinstance(own, float) and 0 <= own < 1 for own in self.betas):
            raise BadInput(f"betas is {self.betas!r}; expected two numbers from 0 to below 1, such as [0.9, 0.999]")
        if self.precision not in PRECISIONS:
            raise BadInput(f"precision is {self.precision!r}; expected one of {', '.join(PRECISIONS)}")
        if not isinstance(self.growing, bool):
            raise BadInput(f"growing is {self.growing!r}; expected true or false")
        if self.batch > self.training_examples:
            raise BadInput(f"{self.training_examples} training examples are fewer than one batch of {self.batch}")

    @property
    def sentence(self) -> str:
        """The recipe in words, without steps, batch and learning rate."""
        spread = "0.8/sqrt(d_model)" if self.initializer_range is None else f"{self.initializer_range:g}"
        warm = f"{self.warmup} steps of warm-up" if self.warmup else "no warm-up"
        decay = f"cosine decay over the last {self.decay:.0%}" if self.decay else "no decay"
        clip = "no clipping" if self.max_grad_norm is None else f"gradients clipped at {self.max_grad_norm:g}"
        precision = "bfloat16 where the processor supports it" if self.precision == "auto" else self.precision
        return f"weights from N(0, {spread}), {warm}, {decay}, {clip}, weight decay {self.weight_decay:g}, {precision}"

    @property
    def name(self) -> str:
        """``gpt`` if the recipe has all values of ``GPT``, else ``small``."""
        return "gpt" if all(getattr(self, field) == value for field, value in GPT.items()) else "small"


GPT: dict[str, Any] = {
    "lr": 1e-3,
    "weight_decay": 0.1,
    "betas": (0.9, 0.999),
    "initializer_range": 0.02,
    "warmup": 1_000,
    "max_grad_norm": 1.0,
    "precision": "bfloat16",  # of matrix products; attention scores and their softmax are in float32
}
"""Recipe ``gpt``, for the paper's transformers (docs/protocol.md); then a cosine to zero."""

LITERAL: dict[str, Any] = {**GPT, "warmup": 0, "decay": 0.0, "max_grad_norm": None}
"""The literal reading of the paper, in which what it does not mention is absent (docs/protocol_literal.md)."""


def gpt(steps: int, batch: int, training_examples: int, checkpoint_every: int = 400) -> Recipe:
    """Return recipe ``gpt`` for a number of steps."""
    decay = 1 - GPT["warmup"] / steps
    return Recipe(steps, batch, training_examples, decay=decay, checkpoint_every=checkpoint_every, **GPT)


@dataclass(frozen=True)
class Preset:
    """A task, an architecture and a recipe: all that defines a training run.

    Attributes:
        task: the task to train on.
        architecture: the shape of the transformer.
        recipe: the hyperparameters of training.
        seed: the default seed.
    """

    task: TrainableTask
    architecture: Architecture
    recipe: Recipe
    seed: int = 0

    def __post_init__(self) -> None:
        if self.recipe.growing and not (isinstance(self.task, RetrievalTask) and not self.task.implicit_curriculum):
            raise BadInput("growing is true; expected a retrieval task without the implicit curriculum")

    @property
    def config(self) -> hooked_transformer.HookedTransformerConfig:
        """The TransformerLens config of the model, with the recipe's initializer_range."""
        return self.architecture.config(self.task, self.recipe.initializer_range)

    def changed(self, /, **changes: Any) -> Preset:
        """Return the preset with changed fields of its task, its architecture or its recipe.

        Raises:
            BadInput: there is no such field, or a value is out of range or of the wrong type.
        """
        known = {
            part: [field.name for field in fields(getattr(self, part))] for part in ("recipe", "architecture", "task")
        }
        own: dict[str, dict[str, Any]] = {part: {} for part in known}
        for name, value in changes.items():
            part = next((part for part, names in known.items() if name in names), None)
            if part is None:
                every = ", ".join(name for names in known.values() for name in names)
                raise BadInput(f"no field {name!r}; expected one of {every}")
            own[part][name] = value
        try:
            task = task_of({**describe(self.task), **own["task"]})
        except ValueError as error:
            raise BadInput(str(error)) from error
        return replace(
            self,
            task=task,
            architecture=replace(self.architecture, **own["architecture"]),
            recipe=replace(self.recipe, **own["recipe"]),
        )


def preset(name: str, /, **changes: Any) -> Preset:
    """Return a preset by name, with changed fields of its task, its architecture or its recipe.

    ``preset("tiny", n_layers=3, steps=500)``

    Raises:
        BadInput: there is no such preset or field, or a value is out of range or of the wrong type.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadInput(f"unknown preset {name!r}; {meant}`retrieval-interp models presets` lists all {len(PRESETS)}")
    return PRESETS[name].changed(**changes) if changes else PRESETS[name]


def _twelve_layers(seed: int) -> Preset:
    return Preset(
        RetrievalTask(n_steps=3),
        Architecture(n_layers=12, n_heads=1, d_model=128, d_head=128),
        gpt(24_000, batch=128, training_examples=2**18),
        seed,
    )


def _figure4(n_layers: int, *, implicit_curriculum: bool) -> Preset:
    return Preset(
        RetrievalTask(n_steps=5 if implicit_curriculum else 3, implicit_curriculum=implicit_curriculum),
        Architecture(n_layers=n_layers, n_heads=8, d_model=128, d_head=16),
        gpt(10_000, batch=512, training_examples=2**20),
    )


def _laptop(n_layers: int, *, growing: bool = False, **asked: Any) -> Preset:
    return Preset(
        RetrievalTask(n_steps=3, **asked),
        Architecture(n_layers, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=4_000, batch=128, training_examples=2**17, lr=2e-3, growing=growing),
    )


PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        RetrievalTask(n_steps=2),
        Architecture(n_layers=4, n_heads=1, d_model=64, d_head=64),
        Recipe(steps=3_000, batch=128, training_examples=2**18, checkpoint_every=200),
    ),
    "small": Preset(
        RetrievalTask(n_steps=2),
        Architecture(n_layers=6, n_heads=1, d_model=64, d_head=64),
        Recipe(steps=2_000, batch=128, training_examples=2**18, lr=2e-3, checkpoint_every=200),
    ),
    "medium": Preset(
        RetrievalTask(n_steps=3),
        Architecture(n_layers=8, n_heads=1, d_model=64, d_head=64),
        Recipe(steps=3_000, batch=128, training_examples=2**18, checkpoint_every=500),
    ),
    "induction": Preset(
        RetrievalTask(n_steps=1),
        Architecture(n_layers=2, n_heads=1, d_model=64, d_head=64),
        Recipe(steps=3_000, batch=128, training_examples=2**18, checkpoint_every=500),
    ),
    "one_layer": Preset(
        RetrievalTask(n_steps=1),
        Architecture(n_layers=1, n_heads=8, d_model=64, d_head=8),
        Recipe(steps=6_000, batch=128, training_examples=2**17, lr=2e-3, checkpoint_every=1_000),
    ),
    "conditional": Preset(
        ConditionalTask(n_chains=3),
        Architecture(n_layers=4, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=12_000, batch=128, training_examples=2**18, lr=2e-3, checkpoint_every=1_000),
    ),
    "equations": Preset(
        EquationsTask(n_steps=3),
        Architecture(n_layers=6, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=3_000, batch=128, training_examples=2**18, lr=2e-3, checkpoint_every=1_000),
    ),
    "induction_tokens": Preset(
        WordsTask(Kind.induction),
        Architecture(n_layers=2, n_heads=4, d_model=64, d_head=16, mlp=False),
        Recipe(steps=2_000, batch=128, training_examples=2**17, lr=2e-3, checkpoint_every=1_000),
    ),
    "ioi": Preset(
        WordsTask(Kind.ioi),
        Architecture(n_layers=3, n_heads=2, d_model=64, d_head=32, mlp=False),
        Recipe(steps=1_000, batch=128, training_examples=2**17, lr=2e-3, checkpoint_every=500),
    ),
    "transformer_a": _twelve_layers(0),
    "transformer_b": _twelve_layers(1),
    "transformer_c": _twelve_layers(2),
    "transformer_d": Preset(
        RetrievalTask(n_steps=4),
        Architecture(n_layers=24, n_heads=1, d_model=512, d_head=16, mlp=False),
        gpt(6_400, batch=256, training_examples=2**18, checkpoint_every=80),
    ),
    **{f"laptop_ic_{n}": _laptop(n) for n in range(1, 7)},
    **{f"laptop_nonic_{n}": _laptop(n, implicit_curriculum=False) for n in range(1, 7)},
    "laptop_growing": _laptop(4, implicit_curriculum=False, growing=True),
    "laptop_without_x1": _laptop(4, left_out=1),
    "laptop_without_x2": _laptop(4, left_out=2),
    **{f"figure4_ic_{n}": _figure4(n, implicit_curriculum=True) for n in range(1, 9)},
    **{f"figure4_nonic_{n}": _figure4(n, implicit_curriculum=False) for n in range(1, 9)},
}
"""All presets by name: those of the paper (``transformer_*``, ``figure4_*``), and smaller ones; see ``preset``."""
