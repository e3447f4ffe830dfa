"""The presets: the models of the paper, and smaller ones.

paper_abc                    section 8.1: 12 layers of one head, D = 3; the paper's A, B and C are three seeds of it
paper_d                      section 9.1: 24 layers of one head, no MLPs, D = 4
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

from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from circuits.errors import BadInput
from circuits.model.transformer import hooked_transformer
from circuits.utils.lazy import torch
from retrieval_interp.records import Size, record
from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.registry import problem_of, task_of
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import TrainableTask
from retrieval_interp.tasks.words import Kind, WordsTask

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Beta = Annotated[float, Field(ge=0, lt=1)]


@record
class Architecture:
    """The shape of a transformer: pre-LayerNorm, GELU, causal, as in GPT-2.

    Attributes:
        n_layers: the number of layers.
        n_heads: the number of heads per layer.
        d_model: the width of the residual stream.
        d_head: the width of a head.
        mlp: whether every layer has an MLP, of width 4 d_model.
    """

    n_layers: Size
    n_heads: Size
    d_model: Size
    d_head: Size
    mlp: bool = True

    def config(
        self, task: TrainableTask, initializer_range: float | None = None
    ) -> hooked_transformer.HookedTransformerConfig:
        """Return the TransformerLens config of this shape for a task, on the CPU in float32.

        ``initializer_range`` is the deviation of the initial weights; None for TransformerLens's 0.8/sqrt(d_model).
        """
        sizes = {name: getattr(self, name) for name in ("n_layers", "n_heads", "d_model", "d_head")}
        return hooked_transformer.HookedTransformerConfig(
            **sizes,
            **{"n_ctx": task.n_positions, "d_vocab": task.d_input, "d_vocab_out": task.d_output},
            d_mlp=4 * self.d_model if self.mlp else None,
            attn_only=not self.mlp,
            act_fn="gelu_pytorch_tanh" if self.mlp else None,
            initializer_range=-1.0 if initializer_range is None else initializer_range,
            **{"normalization_type": "LN", "device": "cpu", "dtype": torch.float32},
        )


@record
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
        precision: the precision of matrix products; auto: bfloat16 if the processor supports it. Weights and moments
            are float32.
        checkpoint_every: the number of steps between checkpoints.
        growing: whether to use an explicit curriculum: during the first half of the steps D grows from 1 to the task's
            D in equal intervals, and the chains of the training examples are shortened accordingly.
    """

    steps: Count
    batch: Count
    training_examples: Count
    lr: Positive = 1e-3
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = 0.1
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)  # a list in JSON
    initializer_range: Positive | None = None
    warmup: Annotated[int, Field(ge=0)] = 100
    decay: Annotated[float, Field(ge=0, le=1)] = 0.4
    max_grad_norm: Positive | None = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    checkpoint_every: Count = 400
    growing: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if self.warmup > self.steps and self.warmup != Recipe.warmup:
            raise ValueError(f"warmup is {self.warmup}; expected at most the number of steps, {self.steps}")
        if self.batch > self.training_examples:
            raise ValueError(f"{self.training_examples} training examples are fewer than one batch of {self.batch}")
        return self


GPT: dict[str, Any] = {
    **{"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.999), "initializer_range": 0.02},
    **{"warmup": 1_000, "max_grad_norm": 1.0, "precision": "float32"},
}
"""Recipe ``gpt``, for the paper's transformers (docs/protocol.md); then a cosine to zero."""


@dataclass(frozen=True)
class Preset:
    """A task, an architecture and a recipe: all that defines a training run but its seed.

    Attributes:
        task: the task to train on.
        architecture: the shape of the transformer.
        recipe: the hyperparameters of training.
    """

    task: TrainableTask
    architecture: Architecture
    recipe: Recipe

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
        parts = asdict(self)
        for name, value in changes.items():
            part = next((part for part in ("recipe", "architecture", "task") if name in parts[part]), None)
            if part is None:
                every = ", ".join(name for part in ("recipe", "architecture", "task") for name in parts[part])
                raise BadInput(f"no field {name!r}; expected one of {every}")
            parts[part][name] = value
        try:
            task = task_of({"problem": problem_of(self.task), **parts["task"]})
        except ValueError as error:
            raise BadInput(str(error)) from error
        return Preset(task, Architecture(**parts["architecture"]), Recipe(**parts["recipe"]))


def preset(name: str, /, **changes: Any) -> Preset:
    """Return a preset by name, with changed fields of its task, its architecture or its recipe.

    ``preset("tiny", n_layers=3, steps=500)``

    Raises:
        BadInput: there is no such preset or field, or a value is out of range or of the wrong type.
    """
    family, _, number = name.rpartition("_")
    most, member = FAMILIES.get(family, (0, None))
    if name in PRESETS:
        chosen = PRESETS[name]
    elif member is not None and number in map(str, range(1, most + 1)):
        chosen = member(int(number))
    elif name in TRAINED:
        raise BadInput(f"{name} is a trained model, to load; the preset for training its like is {TRAINED[name]}")
    else:
        near = get_close_matches(name, [*PRESETS, *(f"{family}_1" for family in FAMILIES)])
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadInput(f"unknown preset {name!r}; {meant}`retrieval-interp models presets` lists all")
    return chosen.changed(**changes) if changes else chosen


def _gpt(steps: int, batch: int, training_examples: int, checkpoint_every: int = 400) -> Recipe:
    decay = 1 - GPT["warmup"] / steps
    return Recipe(steps, batch, training_examples, decay=decay, checkpoint_every=checkpoint_every, **GPT)


def _small(steps: int, checkpoint_every: int, lr: float = 2e-3, training_examples: int = 2**18) -> Recipe:
    return Recipe(steps, 128, training_examples, lr, checkpoint_every=checkpoint_every)


def _figure4(n_layers: int, task: RetrievalTask) -> Preset:
    return Preset(task, Architecture(n_layers, 8, 128, 16), _gpt(10_000, 512, 2**20))


def _laptop(n_layers: int, task: RetrievalTask, growing: bool = False) -> Preset:
    recipe = Recipe(4_000, 128, 2**17, 2e-3, growing=growing)
    return Preset(task, Architecture(n_layers, 4, 64, 16), recipe)


ALONE = RetrievalTask(3, implicit_curriculum=False)  # asked for x3 alone

PRESETS: dict[str, Preset] = {
    "tiny": Preset(RetrievalTask(2), Architecture(4, 1, 64, 64), _small(3_000, 200, 1e-3)),
    "small": Preset(RetrievalTask(2), Architecture(6, 1, 64, 64), _small(2_000, 200)),
    "medium": Preset(RetrievalTask(3), Architecture(8, 1, 64, 64), _small(3_000, 500, 1e-3)),
    "induction": Preset(RetrievalTask(1), Architecture(2, 1, 64, 64), _small(3_000, 500, 1e-3)),
    "one_layer": Preset(RetrievalTask(1), Architecture(1, 8, 64, 8), _small(6_000, 1_000, 2e-3, 2**17)),
    "conditional": Preset(ConditionalTask(n_chains=3), Architecture(4, 4, 64, 16), _small(12_000, 1_000)),
    "equations": Preset(EquationsTask(n_steps=3), Architecture(6, 4, 64, 16), _small(3_000, 1_000)),
    "induction_tokens": Preset(
        WordsTask(Kind.induction), Architecture(2, 4, 64, 16, mlp=False), _small(2_000, 1_000, 2e-3, 2**17)
    ),
    "ioi": Preset(WordsTask(Kind.ioi), Architecture(3, 2, 64, 32, mlp=False), _small(1_000, 500, 2e-3, 2**17)),
    "paper_abc": Preset(RetrievalTask(3), Architecture(12, 1, 128, 128), _gpt(24_000, 128, 2**18)),
    "paper_d": Preset(RetrievalTask(4), Architecture(24, 1, 512, 16, mlp=False), _gpt(6_400, 256, 2**18, 80)),
    "laptop_growing": _laptop(4, ALONE, growing=True),
    "laptop_without_x1": _laptop(4, RetrievalTask(3, left_out=1)),
    "laptop_without_x2": _laptop(4, RetrievalTask(3, left_out=2)),
}
"""The presets by name. Those that differ only in their depth are ``FAMILIES``; see ``preset``."""

FAMILIES: dict[str, tuple[int, Callable[[int], Preset]]] = {
    "figure4_ic": (8, lambda n: _figure4(n, RetrievalTask(5))),
    "figure4_nonic": (8, lambda n: _figure4(n, ALONE)),
    "laptop_ic": (6, lambda n: _laptop(n, RetrievalTask(3))),
    "laptop_nonic": (6, lambda n: _laptop(n, ALONE)),
}
"""The most layers of a family, and its preset with so many layers; ``figure4_ic_3`` has three."""

TRAINED = {f"transformer_{name}": "paper_d" if name == "d" else "paper_abc" for name in "abcd"}
"""The presets of the shapes of trained models, whose recipe is another; earlier runs name their preset so."""
