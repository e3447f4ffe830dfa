"""Test discovery on three programs that tracr compiled: is every head's pattern that of its selector?

    python -m benchmarks.tracr [--json]

A head of the found circuit selects, for each token, the tokens to which it gives more than half of the row's highest
attention to a token, if that is more than 0.05. These pairs of tokens are compared with those of the head's selector
in the program. Heads without a selector are idle; they should be uniform or identity. Before, the weights are
checked: the outputs are tracr's own, and the heads of the model attend as their selectors say.

Success: the weights pass, precision and recall of pairs are at least 0.95 for every head with a selector, and idle
heads are uniform or identity. The exit code is 0 if so, and 1 if not.
"""

import argparse
import json
import sys
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchmarks.tracr.programs import PROGRAMS, N, Program, Task, model_of, stored
from circuits import discover
from circuits.mechanisms.mechanism import checked_pattern
from circuits.model.patterns import attention_patterns
from retrieval_interp.models.provenance import versions

GOAL = 0.95
SEEN, LEAST = 0.5, 0.05  # of a row's highest attention; and at least
N_EXAMPLES, FRESH = 256, 987654321

Pairs = Bool[Tensor, "batch query key"]


def pairs(pattern: Float[Tensor, "batch query key"]) -> Pairs:
    """Return which tokens a pattern selects for which, without BOS."""
    among = pattern[:, 1:, 1:]
    return (among > SEEN * among.amax(dim=-1, keepdim=True)) & (among > LEAST)


def precision_and_recall(found: Pairs, true: Pairs) -> tuple[float, float]:
    """Return the share of the found pairs that are true, and the share of the true pairs that were found."""
    both = (found & true).sum().item()
    return both / max(int(found.sum()), 1), both / max(int(true.sum()), 1)


def compared(program: Program) -> dict[str, Any]:
    """Discover the circuit of a program, and compare it with the program's selectors."""
    model, task, own = model_of(program), Task(program), stored(program)
    examples = task.examples(N_EXAMPLES, FRESH)
    tokens, heads = task.tokens(examples), {}
    with torch.no_grad():
        off = (model(own["inputs"]) - own["outputs"]).abs().max().item()
        attention = dict(attention_patterns(model, examples))
    found = discover(model, task, n_examples=N_EXAMPLES)
    for head, selector in program.selectors.items():
        mechanism, true = found.circuit.heads[head], selector(tokens)
        pattern = checked_pattern(mechanism, examples.roles, N + 1).expand(N_EXAMPLES, -1, -1)
        precision, recall = precision_and_recall(pairs(pattern), true)
        selects = precision_and_recall(pairs(attention[head.layer][:, head.index]), true)
        heads[str(head)] = {"selector": selector.__name__.strip("_"), "found": str(mechanism)}
        heads[str(head)] |= {"precision": precision, "recall": recall, "model_selects": min(selects) == 1.0}
    idle = {head: str(one) for head, one in found.circuit.heads.items() if head not in program.selectors}
    wrong = [str(head) for head, one in idle.items() if one not in ("uniform", "identity")]
    figures = [head[key] for head in heads.values() for key in ("precision", "recall")]
    checked = off < 1e-4 and all(head["model_selects"] for head in heads.values())
    return {
        "heads": heads,
        "idle_heads": {"right": len(idle) - len(wrong), "wrong": wrong},
        "precision": sum(figures[::2]) / len(heads),
        "recall": sum(figures[1::2]) / len(heads),
        "off_tracr": off,
        "unablated": found.unablated.mean,
        "combined": found.combined.mean,
        "sequences": found.n_evaluations,
        "passed": checked and min(figures) >= GOAL and not wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    found = {program.name: compared(program) for program in PROGRAMS}
    passed = all(one["passed"] for one in found.values())
    if arguments.json:
        command = "python -m benchmarks.tracr --json"
        print(json.dumps({"command": command, **versions(), "passed": passed, "programs": found}, indent=2))
        return not passed
    for name, one in found.items():
        print(f"{name}: {'passed' if one['passed'] else 'not passed'}; loss {one['combined']:.4f}")
        for head, own in one["heads"].items():
            figures = f"precision {own['precision']:.2f}, recall {own['recall']:.2f}"
            print(f"  {head}: selects {own['selector']}; found {own['found']}: {figures}")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
