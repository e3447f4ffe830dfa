"""Models that were trained to carry a given circuit, on the minimal task: their shape, their weights, their training.

    python -m benchmarks.ground_truth.interchange_trained [--seeds 30]

The circuits are drawn as for the other levels, with four chains and without distractors; the models are transformers of
the minimal task (``RetrievalTask``), with MLPs. ``circuits.ground_truth.interchange_training`` trains them. A model
that does not carry its circuit (``truth.py``) is trained anew with twice as many steps, and then with four times as
many. No seed is left out, also if this does not help. A seed whose weights are in ``data/interchange_trained`` is not
trained again.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.truth import GroundTruth, carried
from benchmarks.recovery import Planted
from circuits import OneHot
from circuits.ground_truth.interchange_training import train_to_carry
from retrieval_interp.models.build import VectorTransformer
from retrieval_interp.models.checkpoints import fill, load_tensors, save_tensors
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.retrieval import RetrievalTask

STEPS = {1: 1000, 2: 2500, 3: 3000}  # by the number of hops
D_MODEL = {1: 32, 2: 32, 3: 48}
D_HEAD = {1: 16, 2: 16, 3: 32}  # at D = 3 a head carries up to three symbols
LR = 3e-3
LONGER = (1, 2, 4)  # times as many steps
CHOSEN_ON = 123456789  # the seed of the examples that say whether to train longer; the benchmark judges on others


def weights_of(seed: int) -> Path:
    """Return the file of a seed's weights."""
    return data_folder() / "interchange_trained" / f"seed_{seed:02}.safetensors"


def check_weights(levels: Sequence[str], n_seeds: int, parser: argparse.ArgumentParser) -> None:
    """End the program with one line if the level *trained* is asked for and the weights of a seed are missing."""
    missing = [str(seed) for seed in range(n_seeds) if "trained" in levels and not weights_of(seed).exists()]
    if missing:
        train = f"python -m benchmarks.ground_truth.interchange_trained --seeds {n_seeds}"
        parser.error(f"level trained: no weights of seeds {', '.join(missing)}; make them with {train}")


def task_of(planted: Planted) -> RetrievalTask:
    """Return the minimal task with the hops and the chains of a planted circuit."""
    return RetrievalTask(planted.problem.n_steps, planted.problem.n_chains)


def untrained(planted: Planted, seed: int) -> VectorTransformer:
    """Return the model before its training."""
    hops = planted.problem.n_steps
    shape = Architecture(planted.n_layers, planted.n_heads, D_MODEL[hops], D_HEAD[hops])
    return VectorTransformer(shape.config(task_of(planted)), seed)


def stored_model(planted: Planted, seed: int) -> VectorTransformer:
    """Return the trained model of a seed."""
    model = untrained(planted, seed)
    fill(model, load_tensors(weights_of(seed))[0], weights_of(seed))
    return model


def truth_with(planted: Planted, model: VectorTransformer) -> GroundTruth:
    """Return a trained model with its circuit.

    From where a head has no path it attends uniformly, and not to nothing as in compiled models: what it writes there
    has no effect if it is something that the head may write, and nothing at all is not.
    """
    circuit = planted.circuit
    for head, own in circuit.heads.items():
        assert isinstance(own, OneHot)
        circuit = circuit.with_head(head, OneHot(own.rows, elsewhere="uniform"))
    return GroundTruth(model, task_of(planted), circuit, tuple(frozenset([path]) for path in circuit.paths))


def train(planted: Planted, seed: int) -> tuple[VectorTransformer, int]:
    """Return a model trained to carry a planted circuit, and the number of steps that it took."""
    hops = planted.problem.n_steps
    for times in LONGER:
        model, steps = untrained(planted, seed), times * STEPS[hops]
        train_to_carry(model, task_of(planted), planted.circuit, steps=steps, batch=32, lr=LR, seed=seed)
        for weight in model.parameters():
            weight.data = weight.half().float()  # as it is stored
        if carried(truth_with(planted, model), CHOSEN_ON).ok:
            break
    return model, steps


def main() -> None:
    from benchmarks.ground_truth.levels import drawn  # which reads the weights

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=30)
    for seed in range(parser.parse_args().seeds):
        if weights_of(seed).exists():
            continue
        planted = drawn(seed, n_chains=4)
        model, steps = train(planted, seed)
        weights_of(seed).parent.mkdir(parents=True, exist_ok=True)
        learned = {name for name, weight in model.named_parameters() if weight.requires_grad}
        half = {name: own.half() for name, own in model.state_dict().items() if name in learned}
        save_tensors(weights_of(seed), half, {"steps": str(steps)})
        check = carried(truth_with(planted, model), CHOSEN_ON)
        print(f"seed {seed}: {steps} steps, {check}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
