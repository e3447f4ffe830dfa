"""How each architecture is run with the TransformerLens that is installed, and how far it is from plain hooks.

    python -m benchmarks.architectures [--json]

The models are small, with random weights (``tests/architectures.py``). The difference is the largest between the
batched evaluation and plain hooks, in log-probabilities, over five circuits and batches of 1, 3, 4, 5 and 8 examples.
"""

import argparse
import json
import warnings

from circuits import BadInput, evaluate
from retrieval_interp.models.provenance import versions
from tests.architectures import CONFIGS
from tests.circuits.model.test_architectures import CIRCUITS, PROBLEM, model_of, with_hooks

BATCHES = (1, 3, 4, 5, 8)


def measure(name: str) -> dict[str, object]:
    """Return how an architecture is run, and its largest difference; or why it is refused."""
    model, apart = model_of(name), 0.0
    try:
        for n in BATCHES:
            examples = PROBLEM.examples(n, seed=0)
            found = evaluate(model, PROBLEM, examples, CIRCUITS)
            apart = max(apart, (found - with_hooks(model, examples)).abs().max().item())
    except BadInput as error:
        return {"run": "refused", "reason": str(error)}
    return {"run": "runs", "difference": float(f"{apart:.1e}")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = {name: measure(name) for name in (*CONFIGS, "native")}
    if arguments.json:
        print(json.dumps({"architectures": result, **versions()}, indent=2))
    else:
        for name, own in result.items():
            print(f"{name}: {', '.join(map(str, own.values()))}")


if __name__ == "__main__":
    main()
