"""Levels of ground truth, from easy to hard; all but the last are compiled models of random circuits, changed.

The circuits are drawn as in ``benchmarks/recovery.py``, for 1 to 3 steps in turn, with at most 4 layers of 2 or 3
heads.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from benchmarks.ground_truth.harder import add_noise, distract, divide, eliminate, soften, superpose
from benchmarks.ground_truth.truth import GroundTruth, carried
from benchmarks.recovery import Planted, plant, with_backup
from circuits import Circuit, Head, OneHot
from circuits.ground_truth import compile_circuit
from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp.ground_truth.minimal_circuit import without_path
from retrieval_interp.models.build import VectorTransformer
from retrieval_interp.models.checkpoints import fill, load_tensors
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.retrieval import RetrievalTask

SOFT, LEAKING, SCATTERED = 0.8, 0.6, 0.42  # attention that is left on the target
NOISE, TILT = 0.04, 0.2  # halved until the model passes the check that it carries its circuit: as much as it bears
D_MODEL, D_HEAD = {1: 32, 2: 32, 3: 48}, {1: 16, 2: 16, 3: 32}  # of trained models, by the number of hops
N_TRAINED = 15  # seeds whose weights are stored


def drawn(seed: int, n_chains: int = 3) -> Planted:
    """Draw a planted circuit without backups."""
    n_steps = 1 + seed % 3
    planted = plant(seed, (n_steps, n_steps), (2 if n_steps == 1 else 3, 4), (2, 3), n_chains)
    circuit = without_path(planted.circuit, planted.backups[1]) if planted.backups else planted.circuit
    return replace(planted, circuit=circuit, backups=())


def model_of(planted: Planted) -> HookedTransformer:
    """Compile a planted circuit."""
    sizes = {"n_layers": planted.n_layers, "n_heads": planted.n_heads}
    return distract(compile_circuit(planted.circuit, planted.task, **sizes), planted.task, planted.distractors)


def truth_of(planted: Planted, model: HookedTransformer) -> GroundTruth:
    """Return the truth of a planted circuit in which no path is divided."""
    needed = [frozenset([path]) for path in planted.circuit.paths if path not in planted.backups]
    backed_up = [frozenset(planted.backups)] if planted.backups else []
    return GroundTruth(model, planted.task, planted.circuit, (*needed, *backed_up))


def compiled(seed: int, n_chains: int = 3) -> GroundTruth:
    """As compiled: hard attention, one dimension for each token."""
    planted = drawn(seed, n_chains)
    return truth_of(planted, model_of(planted))


def soft(seed: int) -> GroundTruth:
    """All heads attend to their targets with 0.8; the rest leaks to other chains, and a little everywhere."""
    truth = compiled(seed)
    soften(truth.model, truth.circuit.heads, SOFT, truth.task.n_chains)
    return truth


def leaking(seed: int) -> GroundTruth:
    """Heads attend to their targets with 0.6, and to the same role of the two other chains with the rest."""
    truth = compiled(seed)
    soften(truth.model, truth.circuit.heads, LEAKING, truth.task.n_chains, leak=True)
    return truth


def scattered(seed: int) -> GroundTruth:
    """Of four chains, heads attend to the right one with 0.42, less than half; the MLP takes what has most."""
    truth = compiled(seed, n_chains=4)
    soften(truth.model, truth.circuit.heads, SCATTERED, truth.task.n_chains, leak=True)
    return truth


def noisy(seed: int) -> GroundTruth:
    """There is noise in all weights, as much as the model bears."""
    return _with_noise(compiled(seed), seed)


def _with_noise(truth: GroundTruth, seed: int) -> GroundTruth:
    def changed(share: float) -> GroundTruth:
        model = deepcopy(truth.model)
        add_noise(model, share, seed)
        return replace(truth, model=model)

    return strongest(changed, NOISE)


def superposed(seed: int) -> GroundTruth:
    """Tokens share half as many dimensions, with as much overlap as the model bears."""
    truth = compiled(seed)
    return strongest(lambda tilt: replace(truth, model=superpose(truth.model, tilt, seed)), TILT)


def strongest(make: Callable[[float], GroundTruth], strength: float) -> GroundTruth:
    """Return what is made with the highest strength, halved ten times at most, that carries its circuit."""
    for halved in range(11):
        truth = replace(make(strength / 2**halved), strength=strength / 2**halved)
        if carried(truth).ok:
            break
    return truth


def divided(seed: int) -> GroundTruth:
    """Paths are divided by the slot of their target: two slots in one head, the third in another of the same layer."""
    planted = drawn(seed)
    n_heads, circuit, sets = planted.n_heads, planted.circuit, []
    rng = random.Random(seed)
    for path in planted.circuit.paths:
        others = [Head(path.head.layer, index) for index in range(n_heads)]
        free = [head for head in others if not _reads(circuit, head, path.source)]
        if not free or (path.source, path.target) in planted.task.layout.joined:
            sets.append([path])
            continue
        other = rng.choice(free)
        positions = rng.sample(planted.task.positions_of(path.target), planted.task.n_chains - 1)
        circuit = divide(circuit, path, other, positions, planted.task)
        sets += [[path], [replace(path, head=other)]]
    distractors = {head: own for head, own in planted.distractors.items() if head not in circuit.heads}
    model = model_of(replace(planted, circuit=circuit, distractors=distractors))
    return GroundTruth(model, planted.task, circuit, tuple(map(frozenset, sets)))


def _reads(circuit: Circuit, head: Head, source: str) -> bool:
    own = circuit.heads.get(head)
    return isinstance(own, OneHot) and any(row[0] == source for row in own.rows)


def eliminating(seed: int) -> GroundTruth:
    """Heads find their targets in two of three slots; a positional head and the MLP bring what is left."""
    planted, rng = drawn(seed), random.Random(seed)
    circuit: Circuit = planted.circuit
    rows: dict[Head, dict[str, int]] = {}
    for path in planted.circuit.paths:
        fetching = Head(path.head.layer, planted.n_heads)
        joining = (path.source, path.target) in planted.task.layout.joined
        if not joining and path.source not in rows.get(fetching, {}):
            *found, left = rng.sample(planted.task.positions_of(path.target), planted.task.n_chains)
            circuit = divide(circuit, path, fetching, found, planted.task)
            rows[fetching] = {**rows.get(fetching, {}), path.source: left}
    circuit = circuit.without_heads(rows)
    model = eliminate(model_of(replace(planted, circuit=circuit, n_heads=planted.n_heads + 1)), planted.task, rows)
    for head, own in rows.items():
        circuit = circuit.with_head(head, OneHot({source: f"position {place}" for source, place in own.items()}))
    needed = tuple(frozenset([path]) for path in planted.circuit.paths)
    return GroundTruth(model, planted.task, circuit, needed, frozenset(rows))


def backed_up(seed: int) -> GroundTruth:
    """A second head, in another layer, has one of the paths, too."""
    planted, rng = drawn(seed), random.Random(seed)
    n_layers = planted.n_layers + 1  # there always is another layer
    circuit, backups = with_backup(rng, planted.circuit, planted.task, n_layers, planted.n_heads, elsewhere=True)
    distractors = {head: own for head, own in planted.distractors.items() if head not in circuit.heads}
    planted = replace(planted, n_layers=n_layers, circuit=circuit, backups=backups, distractors=distractors)
    return truth_of(planted, model_of(planted))


def combined(seed: int) -> GroundTruth:
    """Soft attention, half as many dimensions as tokens, and noise in all weights, in one model."""
    truth = soft(seed)
    return _with_noise(replace(truth, model=superpose(truth.model)), seed)


def trained(seed: int) -> GroundTruth:
    """Trained on the minimal task to carry a circuit of four chains, by interchange interventions.

    The weights were made at revision c5403a5 (``python -m benchmarks.ground_truth.interchange_trained``). From where a
    head has no path it attends uniformly, as in its training, and not to nothing as in compiled models.
    """
    planted = drawn(seed, n_chains=4)
    circuit, hops = planted.circuit, planted.task.n_steps
    for head, own in circuit.heads.items():
        assert isinstance(own, OneHot)
        circuit = circuit.with_head(head, OneHot(own.rows, elsewhere="uniform"))
    task = RetrievalTask(hops, planted.task.n_chains)
    shape = Architecture(planted.n_layers, planted.n_heads, D_MODEL[hops], D_HEAD[hops])
    model, weights = (
        VectorTransformer(shape.config(task), seed),
        data_folder() / f"interchange_trained/seed_{seed:02}.safetensors",
    )
    fill(model, load_tensors(weights)[0], weights)
    return GroundTruth(model, task, circuit, tuple(frozenset([path]) for path in circuit.paths))


COMPILED: dict[str, Callable[[int], GroundTruth]] = {
    level.__name__: level
    for level in (*(compiled, soft, leaking, noisy, superposed, divided, eliminating, backed_up, combined, scattered),)
}
LEVELS = {**COMPILED, "trained": trained}
