"""When each attention path of a circuit appears during training (paper, section 9 and Appendix D).

At every checkpoint of a run, the attention along every path is averaged over a few sequences. Between checkpoints it is
interpolated linearly. A path has emerged at the first step at which its attention is above 0.5. Only one checkpoint is
in memory at a time. The measured table holds all possible paths, so it is enough to follow any circuit later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from circuits.circuit import Circuit, Head
from circuits.circuit_file import load_circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import PREVIOUS, Previous
from circuits.mechanisms.one_hot import OneHot
from circuits.utils.files import read_text
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly
from circuits.utils.progress import Progress, shown
from retrieval_interp.models.checkpoints import load_model
from retrieval_interp.models.library import find, through_training
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT, LOG, checkpoints
from retrieval_interp.training import curves
from retrieval_interp.training.curves import EMERGED, VALIDATION, Curve, first_crossing, read_losses

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
    def emerged(self) -> dict[str, float | None]:
        """For every path, the first step with an attention above 0.5, or None."""
        return {path: first_crossing(curve, EMERGED) for path, curve in self.attention.items()}

    @property
    def validated(self) -> dict[str, Curve]:
        """Every partial loss on the validation sequences, as in figure 6 of the paper; empty in logs without it."""
        return {part: self.losses.get(f"{VALIDATION}_{part}", {}) for part in curves.parts_of(self.losses)}

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
    run: Path | str, circuit: Circuit, *, n_sequences: int = 32, seed: int = 0, progress: Progress | None = None
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
    losses, kept, table = read_losses(run / LOG), checkpoints(run), run / ATTENTION
    read = curves.read_attention(table) if table.exists() else {}
    missing = [str(path) for path in circuit.paths if str(path) not in read]
    if not missing:
        source = f"{len(read[str(circuit.paths[0])])} checkpoints, read from {table.name}"
        first = read_text(table, "a table of attention along paths").splitlines()[0]
        return Emergence(circuit, read, losses, source, first[2:] if first.startswith("# ") else None)
    if len(kept) < 2:
        lacks = f"{ATTENTION} without a column {missing[0]!r}" if read else f"no {ATTENTION}"
        raise BadInput(f"{run}: holds {len(kept)} checkpoints and {lacks}; expected two or more checkpoints")
    from retrieval_interp.experiments.path_attention import path_attention, possible_paths  # imports PyTorch

    with shown(progress, "following the paths") as progress:
        model, task = load_model(run, next(iter(kept.values())))
        examples = task.examples(n_sequences, seed)
        circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
        paths = possible_paths(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
        all_paths: dict[str, dict[int, float]] = {str(path): {} for path in paths}
        for place, (step, then) in enumerate(through_training(run), start=1):
            for curve, attention in zip(
                all_paths.values(), path_attention(then, examples, paths).tolist(), strict=True
            ):
                curve[step] = attention
            progress(place / len(kept))
    return Emergence(circuit, {**all_paths}, losses, f"{len(kept)} checkpoints, {n_sequences} sequences each")


def circuit_to_follow(run: Path) -> Circuit:
    """Return the circuit in the folder of a run; without one, all paths with an attention above 0.5 at some checkpoint.

    No ablation tests the latter. Of several paths of a head from one role, only the one with the highest attention
    counts. A head that attends to the previous position is one path.

    Raises:
        BadInput: there is neither a circuit nor measured attention, or no attention is above 0.5, or a file is damaged.
    """
    table, rows = run / ATTENTION, dict[Head, dict[str, str]]()
    if (run / CIRCUIT).exists():
        return load_circuit(run / CIRCUIT)
    if not table.exists():
        raise BadInput(f"{run}: has no {CIRCUIT} and no {ATTENTION}; name a circuit with --circuit")
    for highest, name in sorted((max(curve.values()), name) for name, curve in curves.read_attention(table).items()):
        head, source, _, target = name.split(" ")
        if highest > EMERGED:
            rows.setdefault(Head.of(head), {})[source] = target  # the highest comes last
    if not rows:
        raise BadInput(f"{table}: no path has an attention above {EMERGED:g} at any checkpoint")
    return Circuit({head: Previous() if PREVIOUS[0] in to else OneHot(to) for head, to in rows.items()})
