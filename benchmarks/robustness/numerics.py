"""Compare the results of validation across precisions, numbers of threads and batch sizes.

    python -m benchmarks.robustness.numerics [--threshold 0.05] [--json] [MODEL_DIR ...]     (default: transformer_a)

Every model is validated (the paper's Appendix E) in single precision, with one thread and the batch size of
``evaluate``. Then it is validated with one of these changed, on the same examples. The square roots of the losses are
compared, which are distances between outputs and targets. In half precision they may differ by twice its ``eps``,
otherwise by 1e-5. Exits with 1 if a verdict differs or a difference exceeds its tolerance.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.arguments import loadable
from circuits import ValidationReport, validate
from circuits.ablation import evaluation
from circuits.model import batching
from retrieval_interp import load
from retrieval_interp.models.provenance import metadata

SEED, EXAMPLES = 1, 1024


@dataclass(frozen=True)
class Setting:
    """Numerical settings.

    Attributes:
        change: the difference from the usual settings.
        precision: the precision of weights and activations.
        threads: the number of PyTorch threads.
        batch: the most sequences at once, circuits times examples; None for the default of ``evaluate``.
        examples: the number of examples.
    """

    change: str
    precision: torch.dtype = torch.float32
    threads: int = 1
    batch: int | None = None
    examples: int = EXAMPLES

    @property
    def tolerance(self) -> float:
        """The tolerance of the square root of a loss."""
        return 1e-5 if self.precision == torch.float32 else 2 * torch.finfo(self.precision).eps

    @contextmanager
    def in_force(self, n_positions: int) -> Iterator[None]:
        """Apply the threads and the batch size until the block ends."""
        before = torch.get_num_threads(), batching.POSITIONS_AT_ONCE
        torch.set_num_threads(self.threads)
        if self.batch is not None:
            batching.POSITIONS_AT_ONCE = self.batch * n_positions
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            batching.POSITIONS_AT_ONCE = before[1]


USUAL = Setting("none")
SETTINGS = (
    Setting("bfloat16", precision=torch.bfloat16),
    Setting("float16", precision=torch.float16),
    Setting("2 threads", threads=2),
    # Small batches are slow, and few examples test them as well.
    *(Setting(f"batches of {n}", batch=n, examples=min(32 * n, EXAMPLES)) for n in (1, 16, 256)),
    Setting("batches of 4096", batch=4096, examples=4096),
)


def report(model_dir: str, setting: Setting, threshold: float) -> tuple[ValidationReport, int]:
    """Validate with a setting, and return the report and the largest number of sequences that ran at once."""
    model, problem, circuit = load(model_dir)
    model.to(setting.precision, print_details=False)
    sizes, losses_of = [0], evaluation.Batch.losses

    def counted(batch: evaluation.Batch, layers: Any) -> Tensor:
        found = losses_of(batch, layers)
        sizes.append(found[..., 0].numel())
        return found

    n_positions = problem.examples(1, SEED).inputs.shape[1]
    with patch.object(evaluation.Batch, "losses", counted), setting.in_force(n_positions):
        found = validate(model, problem, circuit, n_examples=setting.examples, seed=SEED, threshold=threshold)
    return found, max(sizes)


def losses(report: ValidationReport) -> Float[Tensor, " loss"]:
    """Return the mean of every loss in a report: unablated, combined, of each head, and without each path."""
    ablated = [*report.heads, *report.paths]
    return torch.tensor(
        [report.unablated.mean, report.combined.mean, *(loss.mean for one in ablated for loss in one.losses.values())]
    )


def outcomes(report: ValidationReport) -> tuple[Any, ...]:
    """Return all decisions of a report: verdicts, the simplest mechanisms of heads, and which paths are needed."""
    verdicts = [(verdict.step, verdict.outcome) for verdict in report.verdicts]
    heads = [(head.simplest, head.alone) for head in report.heads]
    return verdicts, heads, [(path.needed, path.alternative_targets) for path in report.paths], report.passed


def compare(found: ValidationReport, usual: ValidationReport, setting: Setting) -> dict[str, Any]:
    """Compare a report with the usual one."""
    roots, usual_roots = losses(found).sqrt(), losses(usual).sqrt()
    difference = (roots - usual_roots).abs().max().item()
    return {
        "same_verdicts": outcomes(found) == outcomes(usual),
        "passed": found.passed,
        "losses": len(roots),
        "difference_of_losses": (roots.square() - usual_roots.square()).abs().max().item(),
        "difference_of_roots": difference,
        "tolerance": setting.tolerance,
        "within": difference <= setting.tolerance,
    }


def measure(model_dir: str, threshold: float) -> list[dict[str, Any]]:
    """Compare every setting with the usual one, and return a row for each."""
    usual: dict[int, ValidationReport] = {}
    rows = []
    for setting in SETTINGS:
        n = setting.examples
        if n not in usual:
            usual[n], _ = report(model_dir, replace(USUAL, examples=n), threshold)
        found, at_once = report(model_dir, setting, threshold)
        row = {"model": model_dir, "change": setting.change, "examples": n, "sequences_at_once": at_once}
        rows.append({**row, **compare(found, usual[n], setting)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=loadable, metavar="MODEL_DIR", default=["transformer_a"])
    parser.add_argument("--threshold", type=float, default=0.05, help="a loss below it counts as low (default: 0.05)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = [row for name in arguments.models for row in measure(name, arguments.threshold)]
    if arguments.json:
        command = (
            f"python -m benchmarks.robustness.numerics --threshold {arguments.threshold:g} {' '.join(arguments.models)}"
        )
        models = [metadata(name, load(name)[0]) for name in arguments.models]
        print(json.dumps({"command": command, "seed": SEED, "models": models, "settings": rows}, indent=2))
    else:
        for row in rows:
            outcome = "the circuit holds" if row["passed"] else "the circuit does not hold"
            verdicts = f"the same verdicts, {outcome}" if row["same_verdicts"] else "OTHER VERDICTS"
            within = "within" if row["within"] else "BEYOND"
            roots = f"the square roots of {row['losses']} losses on {row['examples']} examples"
            difference = f"differ by at most {row['difference_of_roots']:.1e}, {within} {row['tolerance']:.1e}"
            print(f"{row['model']}, {row['change']}: {verdicts}; {roots} {difference}")
    sys.exit(0 if all(row["same_verdicts"] and row["within"] for row in rows) else 1)


if __name__ == "__main__":
    main()
