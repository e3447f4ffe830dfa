"""Section 5: how many layers it takes."""

from collections import Counter
from pathlib import Path

from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.tables import DEPTH_SWEEP
from retrieval_interp.experiments import depth_sweep as depth_sweep
from retrieval_interp.theory.depth import bound_paper, layers_causal


def section_5(data: Path) -> list[Claim]:
    """The bound against the models of the depth_sweep."""
    trained = depth_sweep.read(data / DEPTH_SWEEP)
    fewer = {
        "x_D cannot be retrieved with fewer layers (Theorem 1)": ("log3(2D)", bound_paper),
        "a position attends only to those with whom it shares information (Assumption 1), so that D hops take "
        "1 + ceil(log2(D + 1)) layers": ("assumed", layers_causal),
    }
    rows = []
    for claim, (paper, bound) in fewer.items():
        too_shallow = [
            (run.point.world, [loss for symbol, loss in run.losses.items() if run.n_layers < bound(int(symbol[1:]))])
            for run in trained
        ]
        best = [(world, min(losses)) for world, losses in too_shallow if losses]
        if not best:
            rows.append(Claim("5", claim, paper))
            continue
        breaking = Counter(str(world) for world, loss in best if loss < depth_sweep.KNOWN_IN_PART)
        measured = (
            f"{breaking.total()} of {len(best)} models with fewer layers know something of a symbol (loss below "
            f"{depth_sweep.KNOWN_IN_PART}; lowest {min(loss for _, loss in best):.3f})"
        )
        known = measured + "".join(f"; {number} with {world}" for world, number in breaking.items())
        rows.append(
            Claim("5", claim, paper, known, len(best), "retrieval-interp study depth-sweep", verdict_of(not breaking))
        )
    return rows
