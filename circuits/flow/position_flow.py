"""Information flow along a circuit, position by position (paper, section 5 and appendix B).

A position knows pieces: symbols and places, each of one instance. A path carries all that its target knows to its
source, if the two share a piece that determines where to look (Assumption 1). A head that attends by position, by a
fixed pattern, a row to a fixed position, ``previous`` or ``first``, carries from there whatever it knows, and needs to
share nothing: what one instance needs may also wait at a position of another one.
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, First, Previous
from circuits.mechanisms.one_hot import OneHot, is_role, row_pattern
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Layout

Known = Bool[Tensor, "example pos piece instance"]
There = Bool[Tensor, "example instance"]


class PositionFlow:
    """Information flow along a circuit on some examples.

    Roles that only the layout has, such as those of places that look alike, have positions of their own at the end.

    Attributes:
        known: what every position knows before the first layer and after each one.
        allowed: the paths that some instance allows.
        useful: the paths that bring a new piece of the instance to their source in some instance.
    """

    def __init__(self, circuit: Circuit, layout: Layout, roles: Roles, n_positions: int) -> None:
        self.circuit, self.layout, self.n_positions, roles = circuit, layout, n_positions, roles.to("cpu")
        self._example, self._instance = torch.arange(len(roles))[:, None], torch.arange(roles.positions.shape[2])
        self._at = {role: roles[role] for role in roles.names}
        for number, role in enumerate(role for role in layout.roles if role not in self._at):
            first = n_positions + number * len(self._instance)
            self._at[role] = (first + self._instance).expand(len(roles), -1)
        n_all = n_positions + (len(self._at) - len(roles.names)) * len(self._instance)
        start = torch.zeros(len(roles), n_all, len(layout.pieces), len(self._instance), dtype=torch.bool)
        for role, pieces in layout.start.items():
            for piece in pieces:
                start[self._example, self._at[role], layout.pieces.index(piece), self._instance] = True
        self.known, self.allowed, self.useful = [start], set[AttentionPath](), set[AttentionPath]()
        for layer in range(1 + max((head.layer for head in circuit.heads), default=-1)):
            self.known.append(self._after(layer, roles))

    def knows(self, piece: str, role: str) -> Bool[Tensor, "layer example instance"]:
        """Return for every instance whether a role knows its own piece, before the first layer and after each one."""
        place = self.layout.pieces.index(piece)
        return torch.stack([known[self._example, self._at[role], place, self._instance] for known in self.known])

    def _after(self, layer: int, roles: Roles) -> Known:
        before, after = self.known[-1], self.known[-1].clone()
        real = slice(0, self.n_positions)
        for index, mechanism in self.circuit.layer(layer):
            fixed = _by_position(mechanism, roles, self.n_positions)
            if fixed is not None:
                after[:, real] |= torch.einsum("eqk,ekpi->eqpi", fixed.float(), before[:, real].float()) > 0
            for path in (path for path in self.circuit.paths if path.head == (layer, index)):
                everywhere = torch.ones(len(roles), len(self._instance), dtype=torch.bool)
                holds = mechanism.holds(path.source, path.target, roles) if path.joins_roles else everywhere
                for source, target in self.layout.ends(path):
                    self._carry(path, source, target, holds, before, after)
        return after

    def _carry(self, path: AttentionPath, source: str, target: str, holds: There, before: Known, after: Known) -> None:
        """Add what a path brings from one role to another."""
        to = self._at[source]
        ours, theirs = before[self._example, to], before[self._example, self._at[target]]  # [..., piece, instance]
        shared = ours & theirs
        allowed = holds & shared.flatten(2).any(dim=2)
        for other in self.layout.alike.get(target, ()):
            allowed &= (shared & ~before[self._example, self._at[other]]).flatten(2).any(dim=2)
        of, instance = allowed.nonzero(as_tuple=True)
        brought = torch.zeros_like(after, dtype=torch.int)  # instances may meet at one position
        after |= brought.index_put_((of, to[of, instance]), theirs[of, instance].int(), accumulate=True) > 0
        new = (theirs & ~ours)[of, instance, :, instance]
        self.allowed.update([path] if allowed.any() else [])
        self.useful.update([path] if new.any() else [])


def _by_position(mechanism: object, roles: Roles, n_positions: int) -> Bool[Tensor, "example query key"] | None:
    """Return where a head attends by position; None if nowhere.

    These are the positions with ``attended`` or more; the pattern of the other rows of a one-hot head counts where the
    source has no row.
    """
    fixed = torch.zeros(len(roles), n_positions, n_positions, dtype=torch.bool)
    rest, free = mechanism, torch.ones(len(roles), n_positions, dtype=torch.bool)
    if isinstance(mechanism, OneHot):
        rest = mechanism.elsewhere
        for source, target in mechanism.rows:
            there, at = mechanism.holds(source, target, roles), roles[source]
            of, instance = there.nonzero(as_tuple=True)
            free[of, at[of, instance]] = False
            if not is_role(target) and target not in ELSEWHERE:
                rows = row_pattern(target, at, there, roles, n_positions)[of, instance]
                fixed[of, at[of, instance]] = rows >= current().attended
    if isinstance(rest, FixedPattern | Previous | First):
        fixed |= (rest.pattern(roles, n_positions) >= current().attended) & free[..., None]
    return fixed if fixed.any() else None
