"""A receiver: one attention path of a head, with one of the head's inputs patched.

Path patching (Goldowsky-Dill et al. 2023) by interchange: what one sender wrote is exchanged between the instances of
an example, and only one input of one head sees the exchange: its queries (Q), its keys (K) or its values (V).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.circuit import AttentionPath
from circuits.composition.patched_head import Patched, PatchedHead, patched_head
from circuits.composition.senders import written
from circuits.composition.unablated import Unablated
from circuits.losses.by_label import over_labels
from circuits.losses.mean import per_example

INPUTS = ("Q", "K", "V")


def exchanged(n_examples: int, n_instances: int, generator: torch.Generator) -> Int[Tensor, "example instance"]:
    """Return for every instance the next one of its example, in a random cycle through all of them."""
    order = torch.rand(n_examples, n_instances, generator=generator).argsort(dim=1)
    return torch.empty_like(order).scatter_(1, order, order.roll(1, dims=1))


@dataclass(frozen=True)
class Receiver:
    """An attention path on a batch of examples.

    Attributes:
        run: the unablated run.
        path: the path.
        there: the instances on which the path holds.
        instances: for every instance, the one whose content it gets, if it is exchanged within the example.
        between: the roles whose content is exchanged between examples, not between instances.
    """

    run: Unablated
    path: AttentionPath
    there: Bool[Tensor, "example instance"]
    instances: Int[Tensor, "example instance"]
    between: tuple[str, ...]

    @cached_property
    def source(self) -> Int[Tensor, "example instance"]:
        """The positions that attend."""
        return self.run.examples.roles[self.path.source]

    @cached_property
    def target(self) -> Int[Tensor, "example instance"]:
        """The positions that they attend to."""
        return self.run.examples.roles[self.path.target]

    @cached_property
    def head(self) -> PatchedHead:
        """The head, read at the source."""
        return patched_head(self.run, self.path.head, self.source)

    @cached_property
    def pattern(self) -> Float[Tensor, "example instance key"]:
        """The head's own attention from the source."""
        return self.head.pattern

    def patched(self, which: str) -> Patched:
        """Return the head's attention and its output z at the source, with one input patched.

        There is one variant for every sender below the head, and a last one for all of them at once.

        Args:
            which: the input, ``Q``, ``K`` or ``V``.
        """
        role = self.path.source if which == "Q" else self.path.target
        return self.head.patched(which, self.run.examples.roles[role], self._exchanged(role))

    def _exchanged(self, role: str) -> Float[Tensor, "sender example instance d_model"]:
        """Return the head's input at a role, with the contribution of each sender, and of all, exchanged."""
        at = self.run.examples.roles[role]
        contributions = written(self.run, self.path.head.layer, at)
        contributions = torch.cat([contributions, contributions.sum(dim=0, keepdim=True)])
        if role in self.between:
            other = contributions.roll(1, dims=1)
        else:
            other = contributions[:, self.run.example, self.instances]
        return self.run.residual(self.path.head.layer)[self.run.example, at] + other - contributions

    def on_target(self, pattern: Float[Tensor, "*variant example instance key"]) -> Float[Tensor, "*variant example"]:
        """Return the attention on the target, averaged over the instances of each example on which the path holds."""
        to = self.target[..., None].expand(*pattern.shape[:-1], 1)
        return per_example(pattern.gather(-1, to)[..., 0], self.there.float())

    def by_label(
        self, pattern: Float[Tensor, "sender example instance key"]
    ) -> Float[Tensor, "sender example role label"]:
        """Return the attention lost on the target, split by the label of the main group at every role."""
        to = self.target[..., None].expand(*pattern.shape[:-1], 1)
        lost = (self.pattern - pattern).gather(-1, to)[..., 0]
        return over_labels(lost, self.there, self.run.examples.roles)

    def losses(self, z: Float[Tensor, "variant example instance d_head"]) -> Float[Tensor, "variant example"]:
        """Return the losses with another output of the head at the source, where the path holds."""
        if not len(z) or not self.there.any():
            return self.run.losses.repeat(len(z), 1)
        example, instance = self.there.nonzero(as_tuple=True)
        at = example, self.source[example, instance]
        return torch.stack([self.head.losses(at, new[example, instance]) for new in z])
