"""The interchange interventions on a circuit itself: which of them change which answer, by the circuit's paths alone.

The circuit runs on two instances, on symbols instead of numbers. A position knows the symbols of its token, each with
the instance that it comes from. A path leads to the instance whose target shares most symbols with its source, and the
source comes to know all that the target knows. So a change is followed both where it is copied and where it decides
where a later path leads. Compiled circuits (``circuits.ground_truth``) work in this way.

Three rules for what the paths leave open. A path between neighbours in the same place stays in its place. If the ends
share no symbol in either instance, the path stays in its own instance. If both instances share equally many symbols,
the path leads to both. Conditions of paths are ignored: each path counts on all instances.
"""

from collections.abc import Mapping, Sequence

from circuits.circuit import Circuit
from circuits.flow.circuit_flow import path_ends
from circuits.flow.layout import Layout
from circuits.interchange.variables import Variable
from circuits.mechanisms.one_hot import Ends

Symbols = frozenset[tuple[str, int]]  # pieces, each with the instance that it comes from: 0 or 1
State = dict[tuple[str, int], Symbols]  # the symbols that each role of each instance knows
INSTANCES = (0, 1)


def predicted_accuracy(
    circuit: Circuit,
    layout: Layout,
    read_at: Mapping[str, str],
    roles: Sequence[str],
    variable: Variable,
    n_layers: int,
) -> list[list[list[float]]]:
    """Return the interchange accuracy that a circuit predicts, ``[layer, role, component]``; layer 0 is before all.

    It is 1 if only the partner's symbol is known where the component is read, and 0 if only the own one or none is. If
    both are known, it is 1/2: the paths alone do not decide, as when a symbol arrives by two ways.

    Args:
        circuit: the circuit; only its paths count.
        layout: what every role knows at the start.
        read_at: the role at which each component is read.
        roles: the roles to intervene at.
        variable: the variable that is exchanged.
        n_layers: the number of layers of the model.

    Raises:
        BadInput: a path names a role that the layout does not have.
    """
    start = _start(layout)
    changed = start | {
        (variable.role, own): start[variable.role, own] - {(variable.name, own)} | {(variable.name, 1 - own)}
        for own in INSTANCES
    }
    layers = _steps(circuit, layout, n_layers)
    base, source = (_through(state, layers, layout) for state in (start, changed))
    found: list[list[list[float]]] = []
    for layer in range(n_layers + 1):
        found.append([])
        for role in roles:
            patched = base[layer] | {(role, own): source[layer][role, own] for own in INSTANCES}
            answers = _answers(_through(patched, layers[layer:], layout)[-1], read_at)
            found[-1].append([len(known & {1}) / max(1, len(known)) for known in answers.values()])
    return found


def _start(layout: Layout) -> State:
    """Return what each role of both instances knows before the first layer."""
    return {
        (role, own): frozenset((piece, own) for piece in pieces - layout.places)
        for role, pieces in layout.start.items()
        for own in INSTANCES
    }


def _steps(circuit: Circuit, layout: Layout, n_layers: int) -> list[list[Ends]]:
    """Return the ends of every layer's paths."""
    layers: list[list[Ends]] = [[] for _ in range(n_layers)]
    for path in circuit.paths:
        layers[path.head.layer] += path_ends(circuit, path, layout)
    return layers


def _answers(state: State, read_at: Mapping[str, str]) -> dict[str, set[int]]:
    """Return for every component the instances whose symbol is known where it is read."""
    return {name: {own for piece, own in state[at, 0] if piece == name} for name, at in read_at.items()}


def _through(state: State, layers: Sequence[Sequence[Ends]], layout: Layout) -> list[State]:
    """Return the state before the first of some layers and after each of them."""
    states = [state]
    for paths in layers:
        before, after = states[-1], dict(states[-1])
        for source, target in paths:
            for own in INSTANCES:
                after[source, own] |= _seen(before, source, target, own, layout)
        states.append(after)
    return states


def _seen(state: State, source: str, target: str, own: int, layout: Layout) -> Symbols:
    """Return the symbols that the path from a source carries to it in one instance."""
    shared = [len(state[source, own] & state[target, to]) for to in INSTANCES]
    if (source, target) in layout.joined or not any(shared):
        return state[target, own]
    return frozenset().union(*(state[target, to] for to in INSTANCES if shared[to] == max(shared)))
