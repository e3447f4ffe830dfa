"""Hold our EAP against that of a package, auto-circuit 1.0.1: the same models, examples and metric.

    python -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install auto-circuit==1.0.1 "transformer-lens<3" "pyarrow<22"
    python -m benchmarks.peers.against_auto_circuit --python ENVIRONMENT/bin/python [--json]

auto-circuit imports a module that TransformerLens 3 no longer has, and this project does not run on TransformerLens 2.
So the package has an environment of its own, no extra of this project can install it, and the models go there in files.
It reads answers at the last position only. So the metric is the mean output of the right answers of the chain whose
query stands there. The exit code is 0 if every edge's score is the same, but for rounding, and 1 if not.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.levels import COMPILED, LEVELS
from benchmarks.peers.attribution import eap
from benchmarks.peers.graph import Edges, Graph
from benchmarks.peers.metric import Measured
from retrieval_interp.ground_truth.chains import ChainProblem
from retrieval_interp.models.checkpoints import save_tensors
from retrieval_interp.models.provenance import versions

N_EXAMPLES, SEED = 32, 7
ROUNDING = 1e-5  # of the largest score


def ours(level: str, seed: int, file: Path) -> tuple[Edges, Graph]:
    """Return our scores of a model's edges, and write the model with its examples to a file."""
    truth = LEVELS[level](seed)
    problem, model = truth.problem, truth.model
    assert isinstance(problem, ChainProblem)
    examples = problem.examples(N_EXAMPLES, SEED)
    last = (examples.roles["query"] == problem.n_positions - 1).int().argmax(dim=1)
    answers = examples.targets[torch.arange(N_EXAMPLES), :, last] - problem.n_symbols  # the outputs begin with x1
    weights = {name: own for name, own in model.state_dict().items() if not name.endswith((".mask", ".IGNORE"))}
    config = {name: own for name, own in model.cfg.to_dict().items() if isinstance(own, int | float | str | None)}
    save_tensors(file, {**weights, "inputs": examples.inputs, "answers": answers}, {"config": json.dumps(config)})
    graph = Graph(model, examples.inputs, examples.inputs.roll(1, dims=0))
    return eap(Measured(graph, lambda outputs: outputs[:, -1].gather(1, answers).mean())), graph


def place(node: str, graph: Graph, *, sends: bool) -> int:
    """Return the place of auto-circuit's node among the senders or receivers of our graph."""
    kind, *numbers = node.replace("A", "A ").replace(".", " ").split()
    if kind == "Resid":
        return 0 if sends else len(graph.possible) - 1
    layer, index = map(int, [*numbers, graph.n_heads][:2])
    return layer * (graph.n_heads + 1) + index + sends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the Python of an environment with auto-circuit")
    parser.add_argument("--seeds", type=at_least_one, default=6)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = []
    with TemporaryDirectory() as folder:
        files = {(lv, seed): Path(folder, f"{lv}_{seed}") for lv in COMPILED for seed in range(arguments.seeds)}
        own = {model: ours(*model, file) for model, file in files.items()}
        script = Path(__file__).with_name("auto_circuit_scores.py")
        try:
            ran = subprocess.run([arguments.python, "-P", script, *files.values()], stderr=subprocess.PIPE, text=True)
        except OSError as error:
            parser.error(f"{arguments.python}: {error.strerror}; expected the Python of an environment")
        if ran.returncode:
            parser.error(f"{arguments.python}: auto-circuit does not run there: {ran.stderr.splitlines()[-1]}")
        for (level, seed), file in files.items():
            edges, graph = own[level, seed]
            theirs = json.loads(file.with_suffix(".json").read_text())
            there = torch.zeros_like(edges)
            for sender, receiver, score in theirs:
                there[place(receiver, graph, sends=False), place(sender, graph, sends=True)] = abs(score)
            away = float((there - edges).abs().max())
            rows.append(
                {"level": level, "seed": seed, "edges": len(theirs), "largest": float(edges.max()), "away": away}
            )
    same = all(row["edges"] and row["away"] <= ROUNDING * row["largest"] for row in rows)
    if arguments.json:
        command = "python -m benchmarks.peers.against_auto_circuit --python ENVIRONMENT/bin/python"
        made = {"command": f"{command} --seeds {arguments.seeds} --json", **versions()}
        print(json.dumps({**made, "same": same, "models": rows}, indent=2))
    else:
        for row in rows:
            print(*(f"{name} {own}" for name, own in row.items()), sep=", ")
    return not same


if __name__ == "__main__":
    sys.exit(main())
