"""How long will it take? Asked before a validation begins, and answered by a trial."""

import time
from collections.abc import Sequence

from transformer_lens import HookedTransformer

from circuits.circuit import Circuit
from circuits.cores import pieces_at_once
from circuits.evaluation import evaluate, sequences_at_once
from circuits.faithfulness import n_subsets
from circuits.judge import ENOUGH, FEW
from circuits.mechanisms import REPLACEMENTS, SIMPLE
from circuits.one_hot import OneHot
from circuits.problem import Problem
from circuits.sample import Sample
from circuits.statistics import EXAMPLES, FOR_EACH_PATH, RANDOM_CIRCUITS, SUPERFLUOUS_PATHS


def seconds(model: HookedTransformer, problem: Problem, circuit: Circuit, sample: Sample) -> float:
    """About how many seconds ``validate`` and ``against_chance`` take together on these examples.

    Counted as if every loss of step 3 and of completeness took ``ENOUGH`` examples and every rival ``FEW``, none more.

    Args:
        model: any HookedTransformer without padding.
        problem: its task.
        circuit: what will be validated; it names a head at least.
        sample: the examples.

    Raises:
        BadInput: the circuit does not fit the model or the examples.
    """
    n_examples, roles = len(sample), sample.roles
    some, few = min(EXAMPLES, n_examples), min(FEW, n_examples)
    without = [circuit.without(path, row) for path in circuit.paths for row in REPLACEMENTS]
    one_hot = [path for path in circuit.paths if isinstance(circuit.heads[path.head], OneHot)]
    rivals = sum(len(roles.before(path.source)) - 1 for path in one_hot)
    superfluous = min(len(circuit.heads) * len(roles.pairs), max(SUPERFLUOUS_PATHS, FOR_EACH_PATH * len(circuit.paths)))
    alone = [Circuit({head: mechanism}) for head in circuit.heads for mechanism in SIMPLE.values()]
    whole = (1 + len(without)) * n_examples + rivals * few + (RANDOM_CIRCUITS + superfluous) * some
    free = n_examples + (len(alone) + len(one_hot) + model.cfg.n_layers) * min(ENOUGH, n_examples)
    free += (len(circuit.heads) - len(circuit.useful_heads)) * some
    n_own, n_heads = len(circuit.useful_heads), model.cfg.n_layers * model.cfg.n_heads
    free += (1 + n_heads) * some + 9 * n_examples + 2 * n_subsets(n_own) * min(ENOUGH, n_examples)
    return whole * _each(model, problem, sample, [circuit, *without]) + free * _each(model, problem, sample, alone)


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
