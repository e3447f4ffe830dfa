"""How long will it take? Asked before a validation begins, and answered by a trial."""

import time
from collections.abc import Sequence

from transformer_lens import HookedTransformer

from circuits.circuit import Circuit
from circuits.content import MEAN_EXAMPLES
from circuits.cores import pieces_at_once
from circuits.evaluation import evaluate, sequences_at_once
from circuits.faithfulness import n_subsets
from circuits.judge import ENOUGH, FEW
from circuits.mechanisms import REPLACEMENTS, SIMPLE
from circuits.one_hot import OneHot
from circuits.problem import Problem
from circuits.sample import Sample
from circuits.statistics import COST_EXAMPLES, EXAMPLES, FOR_EACH_PATH, RANDOM_CIRCUITS, SUPERFLUOUS_PATHS


def seconds(model: HookedTransformer, problem: Problem, circuit: Circuit, sample: Sample) -> float:
    """About how many seconds ``validate`` and ``against_chance`` take together on these examples.

    Counted as if whatever takes no more examples than decide it took ``ENOUGH``, and every rival ``FEW``.

    Args:
        model: any HookedTransformer without padding.
        problem: its task.
        circuit: what will be validated; it names a head at least.
        sample: the examples.

    Raises:
        BadInput: the circuit does not fit the model or the examples.
    """
    n_examples, roles = len(sample), sample.roles
    some, few, enough, costs = (min(n, n_examples) for n in (EXAMPLES, FEW, ENOUGH, COST_EXAMPLES))
    without = [circuit.without(path, row) for path in circuit.removable for row in REPLACEMENTS]
    one_hot = [path for path in circuit.paths if isinstance(circuit.heads[path.head], OneHot)]
    rivals = sum(len(roles.before(path.source)) - 1 for path in one_hot)
    superfluous = min(len(circuit.heads) * len(roles.pairs), max(SUPERFLUOUS_PATHS, FOR_EACH_PATH * len(circuit.paths)))
    alone = [Circuit({head: mechanism}) for head in circuit.heads for mechanism in SIMPLE.values()]
    n_own, n_heads = len(circuit.useful_heads), model.cfg.n_layers * model.cfg.n_heads
    prescribed = (
        3 * n_examples + len(without) * (enough + costs) + rivals * few + (RANDOM_CIRCUITS + superfluous) * some
    )
    free = 3 * n_examples + (len(alone) + len(one_hot) + model.cfg.n_layers + n_heads) * enough  # validate
    free += (9 + 2 * n_subsets(n_own)) * enough + MEAN_EXAMPLES  # faithfulness
    free += (1 + len(circuit.heads) - n_own) * some  # heads left untouched
    return prescribed * _each(model, problem, sample, [circuit, *without]) + free * _each(model, problem, sample, alone)


def _each(model: HookedTransformer, problem: Problem, sample: Sample, circuits: Sequence[Circuit]) -> float:
    """Seconds for one example under one of many circuits; those in the middle are tried, a piece for every core."""
    n_pieces = pieces_at_once(sample.first.inputs.device)
    most = sequences_at_once(model.cfg.n_heads, sample.first.inputs.shape[1], n_pieces)
    first = max(0, len(circuits) - most) // 2
    tried = circuits[first : first + most]
    examples = sample.first.take(slice(0, n_pieces * max(1, most // len(tried))))
    evaluate(model, problem, examples.take(slice(0, 1)), tried[:1])  # the first time takes longer
    started = time.perf_counter()
    evaluate(model, problem, examples, tried)
    return (time.perf_counter() - started) / (len(tried) * len(examples))
