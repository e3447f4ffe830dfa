"""Ours: which departure from the paper's recipe decides when the first head emerges (docs/protocol.md)."""

import math
from pathlib import Path

from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.tables import PAPER, SMALL, crossings
from retrieval_interp.models.model_dir import LOG

DEPARTURES = {  # one for each run; the folders are those of the paper's recipe, with the name at their end
    "initialisation": "initializer_range=none",
    "decay": "decay=0.4",
    "clipping": "max_grad_norm=1",
}
ALSO_A = {"float32": "precision=float32"}
DECIDES = 0.5  # the least share of the way in log(step)


def departures(data: Path) -> list[Claim]:
    """Return a row for each departure, for D and for A."""
    return [
        _row(data, model, name, setting)
        for model, also in (("D", {}), ("A", ALSO_A))
        for name, setting in {**DEPARTURES, **also}.items()
    ]


def _row(data: Path, model: str, name: str, setting: str) -> Claim:
    """Return the row of one departure; a run that is not there is not measured."""
    paper, small = data / PAPER.folders[model], data / SMALL.folders[model]
    run = paper.with_name(f"{paper.name}_{name}")
    section, claim = f"{'9.2' if model == 'D' else '8.2'} (ours)", f"{model}: {name} alone decides when x1 is learned"
    which = f"recipe paper with {setting}, seed 0"
    if not (run / LOG).exists():
        return Claim(section, claim, "-", which)
    before, changed, after = (crossings(folder / LOG)[0] for folder in (paper, run, small))
    said = ", ".join("never" if step is None else f"{step:.0f}" for step in (changed, before, after))
    measured = f"x1 falls below 0.5 at step {said} (with it; without it; with recipe small)"
    decides = None
    if before and after and before != after:
        share = _share(before, changed or math.inf, after)
        measured += f": {share:.0%} of the way in log(step) (decides: from {DECIDES:.0%})"
        decides = share >= DECIDES
    command = f"retrieval-interp train transformer_{model.lower()} --seed 0 --set {setting}"
    return Claim(section, claim, "-", which, measured, 1, command, verdict_of(decides))


def _share(before: float, changed: float, after: float) -> float:
    """Return which share of the way from one step to another is gone, in log(step); 0 if it goes the other way."""
    return max(0.0, math.log(before / changed) / math.log(before / after)) if changed < math.inf else 0.0
