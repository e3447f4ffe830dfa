"""Every model of the paper by name, and small ones.

transformer_a, _b, _c        section 8.1: 12 layers of one head, D = 3
transformer_d                section 9.1: 24 layers of one head, no MLPs, D = 4
figure4_ic_1 ... _8          section 7.1: 1 to 8 layers of 8 heads, D = 5, implicit curriculum
figure4_nonic_1 ... _8       the same with D = 3, asked for x_D alone
laptop_ic_1 ... _6           the same, smaller: width 64, 4 heads, D = 3, 1 to 6 layers; and laptop_nonic_1 ... _6
laptop_growing               without the implicit curriculum, but D grows in training; 4 layers
laptop_without_x1, _x2       with it, but for one symbol; 4 layers
small                        D = 2, six layers of one head, twice as many as it takes: for a census of circuits
tiny                         D = 2, four layers of one head: learned in about a minute
induction                    D = 1, two layers of one head: the smallest there is
one_layer                    D = 1 in one layer, too few: eight heads and MLPs find a way (see staircase.py)
conditional                  the conditional retrieval problem (section 3.1)
equations                    a language model of the equations of the prompts (appendix A.1)
writing, at_once             D = 7 in two layers, too few: with its symbols written and read again, and without
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from transformer_lens import HookedTransformerConfig

from circuits.errors import BadInput
from retrieval_interp.any_task import Task
from retrieval_interp.conditional import ConditionalTask
from retrieval_interp.equations_task import EquationsTask
from retrieval_interp.task import RetrievalTask
from retrieval_interp.writing_task import WritingTask


@dataclass(frozen=True)
class Architecture:
    """Shape of a transformer: pre-LayerNorm, GELU, causal, as in GPT-2."""

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    mlp: bool = True

    def config(self, task: Task) -> HookedTransformerConfig:
        """The TransformerLens config of this shape for this task, on the CPU in fp32."""
        return HookedTransformerConfig(
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


@dataclass(frozen=True)
class Recipe:
    """How a transformer is trained: AdamW, MSE, no dropout, gradients clipped at norm 1.

    The paper states lr, weight decay, batch and length; warm-up, decay and clipping are ours.

    Attributes:
        steps: training steps.
        batch: sequences in a step.
        training_examples: size of the fixed training set.
        lr: peak learning rate; reached after ``warmup`` steps, decayed to zero over the last ``decay`` share.
        weight_decay: decoupled, on matrices only.
        checkpoint_every: steps between checkpoints.
        growing: an explicit curriculum: D grows from 1 to the task's own, in equal shares of the first half of the
            steps, and the training examples are cut off accordingly.
    """

    steps: int
    batch: int
    training_examples: int
    lr: float = 1e-3
    weight_decay: float = 0.1
    warmup: int = 100
    decay: float = 0.4
    checkpoint_every: int = 400
    growing: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "training_examples", "warmup", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadInput(f"{name} is {value!r}; expected a whole number from 1")
        for name, most in (("lr", 1e3), ("weight_decay", 1e3), ("decay", 1.0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
                raise BadInput(f"{name} is {value!r}; expected a number from 0 to {most:g}")
        if not isinstance(self.growing, bool):
            raise BadInput(f"growing is {self.growing!r}; expected true or false")
        if self.batch > self.training_examples:
            raise BadInput(f"{self.training_examples} training examples do not fill a batch of {self.batch}")


@dataclass(frozen=True)
class Preset:
    """A task, a shape and a recipe, with the seed used when none is given."""

    task: Task
    architecture: Architecture
    recipe: Recipe
    seed: int = 0

    def __post_init__(self) -> None:
        if self.recipe.growing and not (isinstance(self.task, RetrievalTask) and not self.task.implicit_curriculum):
            raise BadInput("only retrieval problems that ask for xD alone can grow")


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        BadInput: there is none.
    """
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadInput(f"unknown preset {name!r}; {meant}`retrieval-interp presets` lists all {len(PRESETS)}")
    return PRESETS[name]


def _twelve_layers(seed: int) -> Preset:
    return Preset(
        RetrievalTask(n_steps=3),
        Architecture(n_layers=12, n_heads=1, d_model=128, d_head=128),
        Recipe(steps=24_000, batch=128, training_examples=2**18),
        seed,
    )


def _figure4(n_layers: int, *, implicit_curriculum: bool) -> Preset:
    return Preset(
        RetrievalTask(n_steps=5 if implicit_curriculum else 3, implicit_curriculum=implicit_curriculum),
        Architecture(n_layers=n_layers, n_heads=8, d_model=128, d_head=16),
        Recipe(steps=10_000, batch=512, training_examples=2**20),
    )


def _laptop(n_layers: int, *, growing: bool = False, **asked: Any) -> Preset:
    return Preset(
        RetrievalTask(n_steps=3, **asked),
        Architecture(n_layers, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=4_000, batch=128, training_examples=2**17, lr=2e-3, growing=growing),
    )


def _seven_hops(task: Task) -> Preset:
    return Preset(
        task,
        Architecture(n_layers=2, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=4_000, batch=128, training_examples=2**17, checkpoint_every=500),
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
    "writing": _seven_hops(WritingTask(n_steps=7)),
    "at_once": _seven_hops(WritingTask(n_steps=7).asked_at_once),
    "transformer_a": _twelve_layers(2),
    "transformer_b": _twelve_layers(1),
    "transformer_c": _twelve_layers(4),
    "transformer_d": Preset(
        RetrievalTask(n_steps=4),
        Architecture(n_layers=24, n_heads=1, d_model=512, d_head=16, mlp=False),
        Recipe(steps=6_400, batch=256, training_examples=2**18, checkpoint_every=80),
    ),
    **{f"laptop_ic_{n}": _laptop(n) for n in range(1, 7)},
    **{f"laptop_nonic_{n}": _laptop(n, implicit_curriculum=False) for n in range(1, 7)},
    "laptop_growing": _laptop(4, implicit_curriculum=False, growing=True),
    "laptop_without_x1": _laptop(4, left_out=1),
    "laptop_without_x2": _laptop(4, left_out=2),
    **{f"figure4_ic_{n}": _figure4(n, implicit_curriculum=True) for n in range(1, 9)},
    **{f"figure4_nonic_{n}": _figure4(n, implicit_curriculum=False) for n in range(1, 9)},
}
