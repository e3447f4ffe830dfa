"""The edges of a compiled circuit, worked out from its construction, without its weights.

A compiled transformer counts: what a role knows is a number of copies of every symbol, each with the instance that it
belongs to. A sender's contribution is such a count, too: the embedding writes a role's own symbol once, a head writes
what its target knows (at a role on none of its paths, what this role knows itself), and the MLP takes away all but one.
A head attends to the instance of its target that shares most copies with its source; between neighbours it attends by
position, which only the embedding holds. So an exchange between instances can be followed by counting:

    own instance ahead    two of three shared symbols are left: nothing is lost
    a tie                 one of two shared symbols is left: half of the attention is lost
    other ahead           the only shared symbol is exchanged: all attention is lost
    none left             no instance shares a symbol: attention is spread evenly

(If the causal mask hides the neighbour of the other instance, a little less is lost. This is not counted.)

Two copies of one symbol count twice before the MLP takes one away. If a head has copied what a role knew already, an
exchange of the embedding, or of this head, therefore leaves one copy less the other: both are senders.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit
from circuits.composition.edges import CARRIED, FOLLOWED
from circuits.composition.sender import ALL, EMBED, Sender
from circuits.ground_truth.compile import MATCH, TokenTask, known_after
from circuits.heads import Head

N = 3  # instances; any number above 2 gives the same edges
Counts = Float[Tensor, "instance piece of_instance"]  # the copies of each symbol that a role knows in each instance
Written = dict[str, dict[Sender, Counts]]  # what each sender wrote at each role
Layers = list[Written]  # before each layer, and after the last


@dataclass(frozen=True)
class CompiledEdge:
    """One edge of a compiled circuit.

    Attributes:
        sender: the part of the model that wrote.
        path: the attention path that reads.
        input: ``Q``, ``K`` or ``V``.
        effect: the attention lost by the exchange (Q, K), or the loss returned (V), as a share of that of all senders.
    """

    sender: Sender
    path: AttentionPath
    input: str
    effect: float

    @property
    def found(self) -> bool:
        """Whether path patching has to find the edge."""
        return self.effect >= (CARRIED if self.input == "V" else FOLLOWED)


def compiled_edges(circuit: Circuit, task: TokenTask) -> tuple[CompiledEdge, ...]:
    """Return the effects of all senders on all paths of a circuit, once it is compiled for a task.

    Args:
        circuit: a circuit that ``compile_circuit`` accepts. Heads that it does not name write nothing.
        task: the task; its loss is the squared error of one-hot answers.

    Raises:
        BadInput: a path joins two roles that share no piece and are not neighbours.
    """
    known_after(circuit, task)
    counting = _Counting(circuit, task)
    edges = []
    for path in circuit.paths:
        written = counting.unpatched[path.head.layer]
        for which in "QKV":
            role = path.source if which == "Q" else path.target
            effects = {sender: counting.effect(path, which, sender) for sender in (*written[role], ALL)}
            whole = effects.pop(ALL)
            for sender, effect in effects.items():
                edges.append(CompiledEdge(sender, path, which, effect / whole if which == "V" else effect))
    return tuple(edges)


@dataclass(frozen=True)
class _Patch:
    """What one sender, or all, wrote at one role is exchanged in one input of a path."""

    path: AttentionPath
    which: str
    sender: Sender


class _Counting:
    """A compiled transformer as counts of symbols: what each role knows, and who wrote it."""

    def __init__(self, circuit: Circuit, task: TokenTask) -> None:
        self.circuit, self.task = circuit, task
        places = task.layout.places
        self.pieces = [piece for piece in task.layout.pieces if piece not in places]
        self.n_layers = 1 + max(path.head.layer for path in circuit.paths)

    @cached_property
    def unpatched(self) -> Layers:
        """The run without any exchange."""
        return self.run()

    def effect(self, path: AttentionPath, which: str, sender: Sender) -> float:
        """Return the attention lost (Q, K) or the loss returned (V) by an exchange."""
        patch = _Patch(path, which, sender)
        if which == "V":
            return self._loss(self.run(patch)[-1])
        attention = self._attention(path, self.unpatched[path.head.layer], patch)
        return 1.0 - float(attention[:, self._before(path).index(path.target)].diagonal().mean())

    def run(self, patch: _Patch | None = None) -> Layers:
        """Return what every sender wrote at every role, before each layer and after the last."""
        written: Written = {}
        for role in self.task.roles:
            own = [float(piece in self.task.layout.start[role]) for piece in self.pieces]
            written[role] = {EMBED: torch.einsum("p,io->ipo", torch.tensor(own), torch.eye(N))}
        layers = [written]
        for layer in range(self.n_layers):
            written = {role: dict(parts) for role, parts in written.items()}
            for head in dict.fromkeys(path.head for path in self.circuit.paths if path.head.layer == layer):
                for role, counts in self._fetched(head, layers[-1], patch):
                    written[role][Sender(layer, index=head.index)] = counts
            for parts in written.values():
                known = torch.stack([*parts.values()]).sum(dim=0)
                parts[Sender(layer, is_mlp=True)] = (2 * known - 1).relu() - (2 * known - 2).relu() - known.relu()
            layers.append(written)
        return layers

    def _fetched(self, head: Head, written: Written, patch: _Patch | None) -> Iterator[tuple[str, Counts]]:
        """Yield what a head writes at every role."""
        paths = {path.source: path for path in self.circuit.paths if path.head == head}
        for role in self.task.roles:
            path = paths.get(role)
            if path is None:
                yield role, _known(written[role])
                continue
            here = patch if patch and patch.path == path else None
            values = self._keys(path, written, here if here and here.which == "V" else None)
            yield role, torch.einsum("irj,rjpo->ipo", self._attention(path, written, here), values)

    def _attention(
        self, path: AttentionPath, written: Written, patch: _Patch | None
    ) -> Float[Tensor, "instance role of_instance"]:
        """Return the attention from the source in each instance to every role before it, and to itself."""
        queries = _known(written[path.source], patch if patch and patch.which == "Q" else None)
        keys = self._keys(path, written, patch if patch and patch.which == "K" else None)
        looked_at = torch.ones(N, N)
        if (path.source, path.target) in self.task.layout.joined:
            exchanged = patch is not None and patch.which in "QK" and patch.sender in (EMBED, ALL)
            looked_at = torch.eye(N).roll(int(exchanged), dims=0)
        scores = torch.einsum("ipo,rjpo->irj", queries, keys)
        scores[:, self._before(path).index(path.target)] += looked_at * (len(self.pieces) + 1)
        scores[:, -1].masked_fill_(~torch.eye(N, dtype=torch.bool), -torch.inf)
        return (MATCH * scores).flatten(1).softmax(dim=1).unflatten(1, (-1, N))

    def _keys(
        self, path: AttentionPath, written: Written, patch: _Patch | None
    ) -> Float[Tensor, "role instance piece of_instance"]:
        """Return what the roles up to the source know; what was written at the target may be exchanged."""
        return torch.stack(
            [_known(written[role], patch if role == path.target else None) for role in self._before(path)]
        )

    def _before(self, path: AttentionPath) -> Sequence[str]:
        """Return the roles up to the source, which is the last."""
        roles = self.task.layout.roles
        return roles[: roles.index(path.source) + 1]

    def _loss(self, written: Written) -> float:
        """Return the squared error of the answers, summed over the symbols and averaged over the components."""
        errors = []
        for piece, role in self.task.read_at.items():
            answer = _known(written[role])[:, self.pieces.index(piece)]
            errors.append((answer - torch.eye(N)).square().sum(dim=1).mean())
        return float(torch.stack(errors).mean())


def _known(parts: Mapping[Sender, Counts], patch: _Patch | None = None) -> Counts:
    """Return the sum of what all senders wrote at a role, with the contribution of one, or of all, exchanged."""
    swapped = (
        counts.roll(1, dims=0) if patch and patch.sender in (sender, ALL) else counts
        for sender, counts in parts.items()
    )
    return torch.stack([*swapped]).sum(dim=0)
