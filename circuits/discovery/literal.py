"""Search with the mechanisms of the paper's Appendix E alone: uniform, identity, and one-hot rows, zero elsewhere.

Each head starts with the simplest of them that keeps the loss low when it alone is replaced (step 3); if none does,
with the one that has the lowest loss. Then one head at a time gets another such mechanism, as long as this lowers the
loss with all heads replaced, until it is low (step 5). Last, paths are left out, and heads made uniform or identity, as
both losses allow.
"""

from circuits.attention import role_attention
from circuits.circuit import Circuit, Head
from circuits.flow.fixed_paths import strongest
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.mechanism import Identity, Mechanism, Uniform
from circuits.mechanisms.one_hot import OneHot
from circuits.model.transformer import windowed
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress

Choices = dict[Head, list[Mechanism]]
SIMPLEST: list[Mechanism] = [Uniform(), Identity()]


def literal_circuit(test: SequentialTest, examples: Examples, progress: Progress = lambda share: None) -> Circuit:
    """Return the best circuit that the search finds; ``test`` has an absolute threshold.

    Args:
        test: the test.
        examples: the examples that show attention; others than those of the test.
        progress: is called with the finished share, 0 to 1.
    """
    enough, choices = current().enough, _choices(test, examples)
    alone = _alone(test, choices)
    progress(0.3)
    heads: dict[Head, Mechanism] = {}
    for head, kinds in choices.items():
        best = min(kinds, key=lambda one: alone[head, one].loss.mean)
        enough_alone = [one for one in kinds if alone[head, one].decision == "below"]
        choices[head], heads[head] = enough_alone or kinds, (enough_alone or [best])[0]
    circuit = Circuit(heads)
    (loss,) = test.measure([circuit], enough)
    while loss.mean >= test.threshold:
        ways = [circuit.with_head(head, one) for head, kinds in choices.items() for one in kinds]
        losses = test.measure(ways, enough)
        best_loss, place = min((one.mean, place) for place, one in enumerate(losses))
        if best_loss >= loss.mean - current().slack:
            break
        circuit, loss = ways[place], losses[place]
    progress(0.7)
    smaller: Circuit | None = circuit
    while smaller is not None:
        circuit = smaller
        ways = [circuit.with_head(head, one) for head, kinds in _simpler(test, circuit).items() for one in kinds]
        decided = test.test({one: one for one in ways})
        low = [one for one, tested in decided.items() if tested.decision == "below"]
        smaller = min(low, key=lambda one: decided[one].loss.mean, default=None)
    progress(1.0)
    return circuit


def _alone(test: SequentialTest, choices: Choices) -> dict[tuple[Head, Mechanism], DecidedLoss]:
    return test.test({(head, one): Circuit({head: one}) for head, kinds in choices.items() for one in kinds})


def _choices(test: SequentialTest, examples: Examples) -> Choices:
    """Return the mechanisms that each head may have: the simplest, all its paths, and each of them alone.

    From every role, a path leads to the role with the highest attention, if this is at least ``likely``.
    """
    roles, cfg = windowed(test.model, examples.roles), test.model.cfg
    attention = role_attention(test.model, examples)
    choices: Choices = {}
    for head in (Head(layer, index) for layer in range(cfg.n_layers) for index in range(cfg.n_heads)):
        rows: dict[str, str] = {}
        for source in roles.distinct:
            to = {
                target: float(attention[(*head, roles.names.index(source), roles.names.index(target))])
                for target in roles.in_layer(head.layer).before(source)
                if target in roles.distinct
            }
            if target := strongest(to, current().likely):
                rows[source] = target
        several = [OneHot(rows)] if len(rows) > 1 else []
        choices[head] = [*SIMPLEST, *(OneHot({one: to}) for one, to in rows.items()), *several]
    return choices


def _simpler(test: SequentialTest, circuit: Circuit) -> Choices:
    """Return what may stand for each head with paths: uniform, identity, or one path less, if it keeps the loss low."""
    with_paths = {head: own for head, own in circuit.heads.items() if isinstance(own, OneHot)}
    choices: Choices = {
        head: [*SIMPLEST, *(own.without_row(*row) for row in own.rows if len(own.rows) > 1)]
        for head, own in with_paths.items()
    }
    alone = _alone(test, choices)
    return {head: [one for one in kinds if alone[head, one].decision == "below"] for head, kinds in choices.items()}
