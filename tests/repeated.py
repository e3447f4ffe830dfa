"""Repeated random tokens: where induction heads were first seen, and a small model that learns to predict them.

    position    0      1  2  3  4    5  6  7    8  9
    token       start  a  b  c  d    u  v  w    b  c        (filler of random length on both sides of the copy)
    chain 2          earlier next               again       (asked at the second b: what comes now? c)

The filler keeps the model from finding the copy by its distance.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from circuits import Examples, Roles
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig

VOCABULARY, PERIOD, FILLER = 24, 6, 6
LENGTH = 1 + 2 * PERIOD + FILLER


@dataclass(frozen=True)
class RepeatedTokens:
    """Predict the next token within the second copy; the loss is the cross-entropy over that of a guess."""

    roles: tuple[str, ...] = ("again", "earlier", "next")
    loss_components: tuple[str, ...] = ("next",)
    output_roles: tuple[str, ...] = ("again",)

    def examples(self, n: int, seed: int) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        shuffled = torch.rand(n, VOCABULARY, generator=generator).argsort(dim=1)
        once, filler = shuffled[:, :PERIOD], shuffled[:, PERIOD : PERIOD + FILLER]
        before = torch.randint(FILLER + 1, (n, 1), generator=generator)  # how much of the filler comes first
        first = 1 + before + torch.arange(PERIOD)
        again = torch.arange(LENGTH - PERIOD, LENGTH).expand(n, -1)
        place = torch.arange(FILLER).expand(n, -1)
        inputs = torch.full((n, LENGTH), VOCABULARY)
        inputs.scatter_(1, 1 + place + PERIOD * (place >= before), filler)
        inputs.scatter_(1, first, once)
        inputs.scatter_(1, again, once)
        positions = torch.stack([again[:, :-1], first[:, :-1], first[:, 1:]], dim=1)
        return Examples(inputs, once[:, 1:], Roles(self.roles, positions))

    def losses(self, outputs: Tensor, examples: Examples) -> Tensor:
        logits = outputs[torch.arange(len(examples))[:, None], examples.roles["again"]].transpose(1, 2)
        loss = torch.nn.functional.cross_entropy(logits, examples.targets, reduction="none")
        return loss.mean(dim=1, keepdim=True) / torch.tensor(float(VOCABULARY)).log()


def trained_model(steps: int = 400) -> HookedTransformer:
    """Two layers of two heads, attention only, trained for some seconds."""
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 64, "d_head": 32, "n_ctx": LENGTH, "d_vocab": VOCABULARY + 1}
    kind = {"d_vocab_out": VOCABULARY, "attn_only": True, "normalization_type": "LN", "seed": 0, "device": "cpu"}
    model = HookedTransformer(HookedTransformerConfig(**sizes, **kind))
    task = RepeatedTokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        examples = task.examples(64, seed=1_000_000 + step)
        loss = task.losses(model(examples.inputs), examples).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()
