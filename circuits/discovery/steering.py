"""Give heads back what the heads with paths above them need in order to look by themselves where the circuit says.

A circuit tells every head where to look, so that a mechanism may leave out what a head above looks for. Here one
head with paths at a time is intact, and then all at once. If they are not self-consistent, one lower head at a time is
intact as well. A lower head with which they are gets less simple mechanisms: first its average in the place of its
other rows, then one more of the paths and fixed positions that its attention shows, then all of them.
"""

from collections.abc import Sequence

from circuits.checks.self_consistency import are_self_consistent, heads_with_paths, restoring
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Fitting
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Mechanism
from circuits.mechanisms.one_hot import OneHot
from circuits.settings import current


def steer(fitting: Fitting, test: SequentialTest, circuit: Circuit) -> Circuit:
    """Return the circuit with lower heads changed where this makes heads with paths self-consistent.

    A change is kept only if the loss with all heads replaced, which ``fitting`` tests, stays low enough; ``test`` tests
    the loss with heads with paths intact. The circuit has a head with paths.
    """
    content = heads_with_paths(circuit)
    for intact in dict.fromkeys((*zip(content), content)):
        if not are_self_consistent(test, circuit, intact):
            circuit = _steered(fitting, test, circuit, intact)
    return circuit


def _steered(fitting: Fitting, test: SequentialTest, circuit: Circuit, intact: Sequence[Head]) -> Circuit:
    """Return the circuit with the simplest change that makes the intact heads self-consistent, or as it is.

    A lower head that gets its first path must be self-consistent, too.
    """
    content = heads_with_paths(circuit)
    lower = [head for head, _ in restoring(test, circuit, intact) if head in fitting.observed.rows]  # not idle
    fuller = {head: _fuller(fitting, head, circuit.heads[head]) for head in lower}
    for step in range(max(map(len, fuller.values()), default=0)):
        for head, mechanism in ((head, others[step]) for head, others in fuller.items() if step < len(others)):
            changed = circuit.with_head(head, mechanism)
            combined = fitting.test.test_one(changed, max_examples=current().in_passing)
            new = [(one,) for one in heads_with_paths(changed) if one not in content]
            taken = combined.decision == "below" and all(
                are_self_consistent(test, changed, heads) for heads in (intact, *new)
            )
            fitting.note("steer", circuit, [(head, mechanism)], 0 if taken else None)
            if taken:
                return changed
    return circuit


def _fuller(fitting: Fitting, head: Head, mechanism: Mechanism) -> list[Mechanism]:
    """Return less simple mechanisms of a head, the simplest first."""
    seen = [*fitting.observed.rows[head], *fitting.observed.single[head]]
    rows = [ends for ends in mechanism.rows if ends in seen] if isinstance(mechanism, OneHot) else []
    average = fitting.observed.mechanism(head, rows)
    if isinstance(mechanism, OneHot):
        rest = average.elsewhere if isinstance(average, OneHot) else average
        average = OneHot(mechanism.rows, rest, dict(mechanism.where))
    others = [[*rows, ends] for ends in seen if ends not in rows]
    fuller = [average, *(fitting.observed.mechanism(head, more) for more in (*others, [*seen]))]
    return [one for one in dict.fromkeys(fuller) if one != mechanism]
