"""Section 5: the least number of layers."""

from collections import Counter
from pathlib import Path

from circuits.errors import BadInput
from retrieval_interp.claims.claim import Claim, listed, share, verdict_of
from retrieval_interp.claims.tables import DEPTH_SWEEP
from retrieval_interp.experiments import depth_sweep
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.theory.depth import bound_paper, layers_causal


def section_5(data: Path) -> list[Claim]:
    """Return the claims on the number of layers, measured on the models of the depth sweep."""
    trained = depth_sweep.read(data / DEPTH_SWEEP)
    if not trained:
        raise BadInput(f"{data / DEPTH_SWEEP / RUNS}: holds no run; make it with: retrieval-interp study depth-sweep")
    seeds, most = sorted({run.seed for run in trained}), max(run.steps for run in trained)
    models = f"depth sweep, width 64, recipe small, up to {most} steps, seeds {listed(seeds)}"
    assumption = "positions attend only where they share information (Assumption 1), so that D hops take at least "
    bounds = [
        ("5", "x_D takes at least log3(2D) layers (Theorem 1)", "log3(2D)", bound_paper),
        ("5 (ours)", f"{assumption}1 + ceil(log2(D + 1)) layers", "assumed", layers_causal),
    ]
    rows = []
    for section, claim, paper, bound in bounds:
        too_shallow = [
            (run.point, [loss for symbol, loss in run.losses.items() if run.n_layers < bound(int(symbol[1:]))])
            for run in trained
        ]
        best = [(point.condition, min(losses)) for point, losses in too_shallow if losses]
        if not best:
            rows.append(Claim(section, claim, paper))
            continue
        breaking = Counter(str(condition) for condition, loss in best if loss < depth_sweep.KNOWN_IN_PART)
        measured = (
            f"{share(breaking.total(), len(best))} models partly learned a symbol that takes more layers than the "
            f"model has (loss below {depth_sweep.KNOWN_IN_PART}; lowest loss {min(loss for _, loss in best):.3f})"
        )
        measured += "".join(f"; {number} with {condition}" for condition, number in breaking.items())
        rows.append(
            Claim(
                section,
                claim,
                paper,
                models,
                measured,
                len(best),
                "retrieval-interp study depth-sweep",
                verdict_of(not breaking, smaller=True),
            )
        )
    return rows
