"""When each attention path of a circuit appears during training (paper, section 9 and Appendix D).

At every checkpoint of a run, the attention along every path is averaged over a few sequences. Between checkpoints it is
interpolated linearly. A path has emerged at the first step at which its attention is above 0.5. Only one checkpoint is
in memory at a time. The measured table holds all possible paths, so it is enough to follow any circuit later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.utils.files import read_text
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly
from circuits.utils.progress import Progress, shown
from retrieval_interp.models.checkpoints import load_model
from retrieval_interp.models.library import find, through_training
from retrieval_interp.models.model_dir import ATTENTION, LOG, checkpoints
from retrieval_interp.training.curves import (
    EMERGED,
    VALIDATION,
    Curve,
    first_below,
    first_crossing,
    parts_of,
    read_attention,
    read_losses,
)

SEQUENCES = 32
STEPS_PER_EPOCH = 8  # as for the paper's transformer D, where 6,400 steps are 800 epochs


@dataclass(frozen=True)
class Emergence:
    """The attention along every path of a circuit, and the losses, over the steps of one training run.

    Attributes:
        circuit: the circuit whose paths are followed.
        all_paths: the attention, 0 to 1, at every checkpoint, for every possible path, in the circuit or not.
        losses: the losses at every logged step: ``loss`` and each partial loss, averaged over the training steps since
            the previous logged step; and ``validation`` and its parts (``validation_x1``) where they were measured.
        source: the source of the attention, in words.
        kept: the command that measured the attention, if it was read from a table that names it; else None.
    """

    circuit: Circuit
    all_paths: Mapping[str, Curve]
    losses: Mapping[str, Curve]
    source: str
    kept: str | None = None

    @property
    def attention(self) -> dict[str, Curve]:
        """The attention along the circuit's paths, at every checkpoint."""
        return {str(path): self.all_paths[str(path)] for path in self.circuit.paths}

    @property
    def components(self) -> list[str]:
        """The names of the partial losses."""
        return parts_of(self.losses)

    @property
    def emerged(self) -> dict[str, float | None]:
        """For every path, the first step with an attention above 0.5, or None."""
        return {path: first_crossing(curve, EMERGED) for path, curve in self.attention.items()}

    @property
    def validated(self) -> dict[str, Curve]:
        """Every partial loss on the validation sequences, as in figure 6 of the paper; empty in logs without it."""
        return {part: self.losses.get(f"{VALIDATION}_{part}", {}) for part in self.components}

    @property
    def learned(self) -> dict[str, float | None]:
        """For every partial loss, the first step at which it is below 0.5 on the validation sequences, or None."""
        return {part: first_below(curve, EMERGED) if curve else None for part, curve in self.validated.items()}

    def plot(self, what: str = "paths") -> plotly.graph_objects.Figure:
        """Draw the attention along the ``paths``, the steps at which they ``emerged``, or the ``losses``."""
        from retrieval_interp.experiments.emergence_page import FIGURES

        return FIGURES[what](self)

    def table(self) -> pd.DataFrame:
        """Return one row for each path: the step and epoch (8 steps) at which it emerged, and the final attention."""
        steps = pd.Series(self.emerged, dtype=float)
        ends = {path: [*curve.values()][-1] for path, curve in self.attention.items()}
        columns = {"step": steps, "epoch": steps / STEPS_PER_EPOCH, "attention_at_end": ends}
        return pd.DataFrame(columns).rename_axis("path")


@entrance
def emergence(
    run: Path | str,
    circuit: Circuit,
    *,
    n_sequences: int = SEQUENCES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Emergence:
    """Measure the attention along a circuit's paths through a training run.

    Args:
        run: a name such as ``transformer_d``, or a folder with ``log.jsonl`` and either ``checkpoints/`` or a measured
            ``attention.csv``.
        circuit: the circuit whose paths are followed.
        n_sequences: the number of sequences to average over; the paper uses 32.
        seed: the seed of the sequences.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: there are neither checkpoints nor a table, the table lacks a path and there are no checkpoints, or the
            circuit has no path or does not fit the model.
    """
    if not circuit.paths:
        raise BadInput("the circuit has no attention path; there is nothing to follow")
    run = find(run)
    losses = read_losses(run / LOG)
    names = [str(path) for path in circuit.paths]
    n_checkpoints = len(checkpoints(run))
    table = run / ATTENTION
    if table.exists():
        kept = read_attention(table)
        missing = [name for name in names if name not in kept]
        if not missing:
            source = f"{len(kept[names[0]])} checkpoints, read from {table.name}"
            first = read_text(table, "a table of attention along paths").splitlines()[0]
            return Emergence(circuit, kept, losses, source, first[2:] if first.startswith("# ") else None)
        if not n_checkpoints:
            raise BadInput(f"{table}: has no column {missing[0]!r}, and the run has no checkpoints to measure it")
    if n_checkpoints < 2:
        raise BadInput(f"{run}: holds {n_checkpoints} checkpoints and no {ATTENTION}; expected two or more")
    with shown(progress, "following the paths") as progress:
        all_paths = measured(run, circuit, n_sequences, seed, progress)
    return Emergence(circuit, all_paths, losses, f"{n_checkpoints} checkpoints, {n_sequences} sequences each")


def measured(
    run: Path, circuit: Circuit, n_sequences: int, seed: int, progress: Callable[[float], None]
) -> dict[str, Curve]:
    """Measure the attention along every possible path at every checkpoint."""
    from circuits.attention import path_attention, possible_paths

    kept = checkpoints(run)
    model, task = load_model(run, next(iter(kept.values())))
    examples = task.examples(n_sequences, seed)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    paths = possible_paths(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    found: dict[str, dict[int, float]] = {str(path): {} for path in paths}
    for place, (step, then) in enumerate(through_training(run), start=1):
        for curve, attention in zip(found.values(), path_attention(then, examples, paths).tolist(), strict=True):
            curve[step] = attention
        progress(place / len(kept))
    return {**found}
