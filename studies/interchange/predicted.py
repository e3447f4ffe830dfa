"""The interchange interventions on a circuit itself: which of them change which answer, by the circuit's paths alone.

The circuit runs on two instances, on symbols instead of numbers. A position knows the symbols of its token, each with
the instance that it comes from. A path leads to the instance whose target shares most symbols with its source, and the
source comes to know all that the target knows. So a change is followed both where it is copied and where it decides
where a later path leads. Compiled circuits (``circuits.ground_truth``) work in this way.

Three rules for what the paths leave open. A path between neighbours in the same place stays in its place. If the ends
share no symbol in either instance, the path stays in its own instance. If both instances share equally many symbols,
the path leads to both. Conditions of paths are ignored: each path counts on all instances.
"""

from collections.abc import Sequence
from itertools import product

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.flow.fixed_paths import fixed_paths, with_fixed_paths
from circuits.flow.flow_check import ROLE_EXAMPLES
from circuits.given import examples_of
from circuits.mechanisms.one_hot import Ends
from circuits.split import at_most
from circuits.task import LaidOut, Layout
from retrieval_interp.tasks.high_level import Interchangeable

Symbols = frozenset[tuple[str, int]]  # pieces, each with the instance that it comes from: 0 or 1
State = dict[tuple[str, int], Symbols]  # the symbols that each role of each instance knows
INSTANCES = (0, 1)


def predicted_accuracy(
    circuit: Circuit, task: Interchangeable, roles: Sequence[str], n_layers: int
) -> dict[tuple[int, int, int, str], float]:
    """Return the interchange accuracies that a circuit predicts, by the numbers of variable, layer and role, component.

    It is 1 if only the partner's symbol is known where the component is read, and 0 if only its own or none is. If
    both are known, it is 1/2: the paths alone do not decide, as when a symbol arrives by two ways.

    Args:
        circuit: the circuit; only its paths count, those of fixed patterns, too.
        task: the task, which says what every role knows at the start, and where each component is read.
        roles: the roles to intervene at.
        n_layers: the number of layers of the model; layer 0 is before all of them.

    Raises:
        BadInput: the task has no layout, or a path names a role that the layout does not have.
    """
    if not isinstance(task, LaidOut):
        raise BadInput(f"{type(task).__name__} has no layout; only with it does a circuit predict anything")
    roles = examples_of(task, at_most(task, ROLE_EXAMPLES), 0).roles
    layout, explicit = task.layout, with_fixed_paths(circuit, fixed_paths(circuit, roles))
    start: State = {
        (role, instance): frozenset((piece, instance) for piece in pieces - layout.places)
        for role, pieces in layout.start.items()
        for instance in INSTANCES
    }
    paths: list[list[Ends]] = [[] for _ in range(n_layers)]
    for path in explicit.paths:
        paths[path.head.layer] += layout.ends(path)
    base, accuracy = _through(start, paths, layout), {}
    for index, variable in enumerate(task.variables):
        exchanged = [start[variable.role, i] - {(variable.name, i)} | {(variable.name, 1 - i)} for i in INSTANCES]
        source = _through(start | {(variable.role, i): exchanged[i] for i in INSTANCES}, paths, layout)
        for layer, (place, role) in product(range(n_layers + 1), enumerate(roles)):
            patched = base[layer] | {(role, instance): source[layer][role, instance] for instance in INSTANCES}
            last = _through(patched, paths[layer:], layout)[-1]
            for component, at in task.read_at.items():
                known = {instance for piece, instance in last[at, 0] if piece == component}
                accuracy[index, layer, place, component] = len(known & {1}) / max(1, len(known))
    return accuracy


def _through(state: State, layers: Sequence[Sequence[Ends]], layout: Layout) -> list[State]:
    """Return the state before the first of some layers and after each of them."""
    states = [state]
    for paths in layers:
        before, after = states[-1], dict(states[-1])
        for (source, target), instance in product(paths, INSTANCES):
            shared = [len(before[source, instance] & before[target, to]) for to in INSTANCES]
            by_place = (source, target) in layout.joined or not any(shared)
            for to in (instance,) if by_place else INSTANCES:
                if by_place or shared[to] == max(shared):
                    after[source, instance] |= before[target, to]
        states.append(after)
    return states
