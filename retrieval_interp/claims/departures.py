"""Ours: which departure from the paper's recipe decides when x1 is learned (docs/protocol_literal.md)."""

import math
from pathlib import Path
from typing import Any

from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.tables import PAPER, SMALL, crossings, is_run_of
from retrieval_interp.models.model_dir import LOG, read_config

DEPARTURES: dict[str, tuple[str, Any]] = {  # the name at the end of a run's folder: a field of the recipe, its value
    "initialisation": ("initializer_range", None),
    "decay": ("decay", 0.4),
    "clipping": ("max_grad_norm", 1.0),
}
ALSO_A: dict[str, tuple[str, Any]] = {"float32": ("precision", "float32")}
DECIDES = 0.5  # the least share of the way in log(step)


def departures(data: Path) -> list[Claim]:
    """Return a row for each departure, for D and for A."""
    return [
        *(_row(data, "D", name) for name in DEPARTURES),
        *(_row(data, "A", name) for name in (*DEPARTURES, *ALSO_A)),
    ]


def _row(data: Path, model: str, name: str) -> Claim:
    """Return the row of one departure; a run that is missing, unfinished or of other settings is not measured."""
    field, value = {**DEPARTURES, **ALSO_A}[name]
    setting = f"{field}={_said(value)}"
    section, claim = (
        f"{'9.2' if model == 'D' else '8.2'} (ours)",
        f"{model}, one seed: {name} alone decides when x1 is learned",
    )
    which = f"recipe paper with {setting}, seed 0"
    run = _run(data, model, name)
    if run is None:
        return Claim(section, claim, "-", which)
    small = data / SMALL.folders[model]
    before, changed, after = (crossings(folder / LOG)[0] for folder in (data / PAPER.folders[model], run, small))
    said = ", ".join("never" if step is None else f"{step:.0f}" for step in (changed, before, after))
    of_small = f"{SMALL.said(data, model)}, {read_config(small)['made']['recipe']['steps']} steps"
    measured = f"x1 falls below 0.5 at step {said} (with it; without it; {of_small})"
    decides = None
    if name == "decay" and changed and changed < (begins := _decay_begins(run)):
        measured += f". The decay begins at step {begins:.0f}, after that, so that it cannot decide"
        decides = False
    elif before and after and before != after:
        way = math.log(before / after)
        share = max(0.0, math.log(before / changed) / way) if changed else 0.0
        measured += f": {share:.0%} of the way in log(step) (decides: from {DECIDES:.0%})"
        off, once_more = _once_more(data, model, before, way)
        measured += once_more
        decides = share >= DECIDES if off < DECIDES else None
    checkpoints = " --set checkpoint_every=20" if model == "D" else ""
    command = f"retrieval-interp train paper_{'d' if model == 'D' else 'abc'} --seed 0{checkpoints} --set {setting}"
    return Claim(section, claim, "-", which, measured, 1, command, verdict_of(decides))


def _run(data: Path, model: str, name: str) -> Path | None:
    """Return the folder of the run with one departure; None if it is missing, unfinished or of other settings."""
    field, value = {**DEPARTURES, **ALSO_A}[name]
    paper = data / PAPER.folders[model]
    run = paper.with_name(f"{paper.name}_{name}")
    return run if (run / LOG).exists() and is_run_of(run, {field: value}) else None


def _once_more(data: Path, model: str, before: float, way: float) -> tuple[float, str]:
    """Return how far x1 falls from where it fell before, if the paper's recipe runs once more, and a text.

    The run with decay is such a run until the decay begins. The distance is a share of ``way``, in log(step), and a
    lower bound if x1 has not fallen by then; 0 and no text if there is no such run, or it is the same to the step.
    """
    run = _run(data, model, "decay")
    if run is None or before >= (begins := _decay_begins(run)):
        return 0.0, ""
    step = min(crossings(run / LOG)[0] or math.inf, begins)
    if step == before:
        return 0.0, ""
    off = abs(math.log(step / before) / way)
    fell = f"falls at step {step:.0f}," if step < begins else f"has not fallen by step {step:.0f}, at least"
    nothing = ", so that one run decides nothing" if off >= DECIDES else ""
    which = "The same recipe once more (the run with decay, until it begins)"
    return off, f". {which}: x1 {fell} {off:.0%} of the way off{nothing}"


def _said(value: object) -> str:
    """Return a value as ``--set`` reads it."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _decay_begins(run: Path) -> float:
    """Return the step at which the learning rate of a run begins to fall."""
    recipe = read_config(run)["made"]["recipe"]
    return float(recipe["steps"] * (1 - recipe["decay"]))
