"""When each attention path of a circuit appears during training (paper, section 9 and Appendix D).

For every checkpoint of a run: the average attention along every path, over a few sequences; between checkpoints, linear
interpolation. A path has emerged at the first step at which its attention is above 0.5. One checkpoint is in memory at
a time. What is kept is a table of all possible paths, so that any circuit can be followed without the checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from circuits.circuit import Circuit
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
    Curve,
    first_below,
    first_crossing,
    parts_of,
    read_attention,
    read_losses,
)

SEQUENCES = 32
STEPS_PER_EPOCH = 8  # of the paper's transformer D: 6,400 steps are 800 epochs


@dataclass(frozen=True)
class Emergence:
    """Attention along every path of a circuit, and the losses, over the steps of one training run.

    Attributes:
        circuit: whose paths were followed.
        everywhere: attention, 0 to 1, at every checkpoint, for each path that is possible, whether the circuit has it
            or not.
        losses: at every logged step: ``loss`` and each partial loss, means over the training steps since the one
            before; ``validation`` where it was measured.
        source: where the attention comes from, in words.
        kept: the command that measured it, where it is a table that was kept and says so.
    """

    circuit: Circuit
    everywhere: Mapping[str, Curve]
    losses: Mapping[str, Curve]
    source: str
    kept: str | None = None

    @property
    def attention(self) -> dict[str, Curve]:
        """That along the circuit's paths."""
        return {str(path): self.everywhere[str(path)] for path in self.circuit.paths}

    @property
    def components(self) -> list[str]:
        """Names of the partial losses."""
        return parts_of(self.losses)

    @property
    def emerged(self) -> dict[str, float | None]:
        """For every path the first step with an attention above 0.5, or None."""
        return {path: first_crossing(curve, EMERGED) for path, curve in self.attention.items()}

    @property
    def learned(self) -> dict[str, float | None]:
        """For every partial loss the first step below 0.5, or None."""
        return {part: first_below(self.losses[part], EMERGED) for part in self.components}

    def plot(self, what: str = "paths") -> plotly.graph_objects.Figure:
        """Attention along the ``paths`` over training, when they ``emerged``, or the ``losses``."""
        from retrieval_interp.experiments.emergence_page import FIGURES

        return FIGURES[what](self)

    def table(self) -> pd.DataFrame:
        """One row for each path: the step and the epoch (of 8 steps) at which it emerged, and its last attention."""
        steps = pd.Series(self.emerged, dtype=float)
        ends = {path: [*curve.values()][-1] for path, curve in self.attention.items()}
        columns = {"step": steps, "epoch": steps / STEPS_PER_EPOCH, "attention_at_end": ends}
        return pd.DataFrame(columns).rename_axis("path")


def emergence(
    run: Path | str,
    circuit: Circuit,
    *,
    n_sequences: int = SEQUENCES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Emergence:
    """Follow a circuit's paths through a training run.

    Args:
        run: a name such as ``transformer_d``, or a folder with ``log.jsonl`` and either ``checkpoints/`` or an
            ``attention.csv`` that was measured before.
        circuit: whose paths to follow.
        n_sequences: to average over; the paper takes 32.
        seed: of the sequences.
        progress: is called with the finished share, 0 to 1. Without it a bar is shown, in a notebook or a terminal.

    Raises:
        BadInput: there is neither, the table holds other paths and there are no checkpoints, or the circuit has no
            path or does not fit the model.
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
            source = f"{len(kept[names[0]])} checkpoints, as kept in {table.name}"
            first = read_text(table, "a table of attention along paths").splitlines()[0]
            return Emergence(circuit, kept, losses, source, first[2:] if first.startswith("# ") else None)
        if not n_checkpoints:
            raise BadInput(f"{table}: has no column {missing[0]!r}, and there are no checkpoints to measure it on")
    if n_checkpoints < 2:
        raise BadInput(f"{run}: holds {n_checkpoints} checkpoints and no {ATTENTION}; expected two or more")
    with shown(progress, "following the paths") as progress:
        everywhere = measured(run, circuit, n_sequences, seed, progress)
    return Emergence(circuit, everywhere, losses, f"{n_checkpoints} checkpoints, {n_sequences} sequences each")


def measured(
    run: Path,
    circuit: Circuit,
    n_sequences: int,
    seed: int,
    progress: Callable[[float], None],
) -> dict[str, Curve]:
    """The attention along every possible path, checkpoint by checkpoint."""
    from circuits.model.attention import path_attention, possible_paths

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
