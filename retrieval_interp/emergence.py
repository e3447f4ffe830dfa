"""When each attention path of a circuit appears during training (paper, section 9 and Appendix D).

For every checkpoint of a run: the average attention along every path, over a few sequences; between checkpoints, linear
interpolation. A path has emerged at the first step at which its attention is above 0.5. One checkpoint is in memory at
a time. What is kept is a table of all possible paths, so that any circuit can be followed without the checkpoints.
"""

import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from circuits.attention import path_attention, possible_paths
from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.files import read_text
from retrieval_interp.checkpoints import LOG, checkpoints, load_model, through_training

ATTENTION = "attention.csv"
SEQUENCES = 32
EMERGED = 0.5
STEPS_PER_EPOCH = 8  # of the paper's transformer D: 6,400 steps are 800 epochs


@dataclass(frozen=True)
class Emergence:
    """Attention along every path of a circuit, and the losses, over the steps of one training run.

    Attributes:
        circuit: whose paths were followed.
        everywhere: attention, 0 to 1: one row for each checkpoint (index ``step``), one column for each path that is
            possible, whether the circuit has it or not.
        losses: one row for each logged step: ``loss`` and a column for each partial loss, means over the training
            steps since the row before; ``validation`` where it was measured.
        source: where the attention comes from, in words.
        kept: the command that measured it, where it is a table that was kept and says so.
    """

    circuit: Circuit
    everywhere: pd.DataFrame
    losses: pd.DataFrame
    source: str
    kept: str | None = None

    @property
    def attention(self) -> pd.DataFrame:
        """The columns of the circuit's paths."""
        return self.everywhere[[str(path) for path in self.circuit.paths]]

    @property
    def parts(self) -> list[str]:
        """Names of the partial losses."""
        return [name for name in self.losses.columns if name not in ("loss", "validation")]

    @property
    def emerged(self) -> dict[str, float | None]:
        """For every path the first step with an attention above 0.5, or None."""
        return {path: first_crossing(self.attention[path], EMERGED) for path in self.attention.columns}

    @property
    def learned(self) -> dict[str, float | None]:
        """For every partial loss the first step below 0.5, or None."""
        return {part: first_crossing(1 - self.losses[part], 1 - EMERGED) for part in self.parts}

    def table(self) -> pd.DataFrame:
        """One row for each path: the step and the epoch (of 8 steps) at which it emerged, and its last attention."""
        steps = pd.Series(self.emerged, dtype=float)
        return pd.DataFrame(
            {"step": steps, "epoch": steps / STEPS_PER_EPOCH, "attention_at_end": self.attention.iloc[-1]}
        ).rename_axis("path")


def first_crossing(values: pd.Series, level: float) -> float | None:
    """The first index, interpolated linearly, at which a series is above a level.

    Its first entry if that is above already; None if it never is.
    """
    steps, heights = values.index.to_numpy(dtype=float), values.to_numpy(dtype=float)
    above = heights > level
    if not above.any():
        return None
    at = int(above.argmax())
    if at == 0:
        return float(steps[0])
    share = (level - heights[at - 1]) / (heights[at] - heights[at - 1])
    return float(steps[at - 1] + share * (steps[at] - steps[at - 1]))


def emergence(
    run: Path,
    circuit: Circuit,
    *,
    n_sequences: int = SEQUENCES,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Emergence:
    """Follow a circuit's paths through a training run.

    Args:
        run: a folder with ``log.jsonl`` and either ``attention.csv``, which holds what was measured before, or
            ``checkpoints/``.
        circuit: whose paths to follow.
        n_sequences: to average over; the paper takes 32.
        seed: of the sequences.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: there is neither, the table holds other paths and there are no checkpoints, or the circuit has no
            path or does not fit the model.
    """
    if not circuit.paths:
        raise BadInput("the circuit has no attention path; there is nothing to follow")
    losses = read_losses(run / LOG)
    names = [str(path) for path in circuit.paths]
    n_checkpoints = len(checkpoints(run))
    table = run / ATTENTION
    if table.exists():
        kept = read_attention(table)
        missing = [name for name in names if name not in kept.columns]
        if not missing:
            source = f"{len(kept)} checkpoints, as kept in {table.name}"
            first = read_text(table, "a table of attention along paths").splitlines()[0]
            return Emergence(circuit, kept, losses, source, first[2:] if first.startswith("# ") else None)
        if not n_checkpoints:
            raise BadInput(f"{table}: has no column {missing[0]!r}, and there are no checkpoints to measure it on")
    if n_checkpoints < 2:
        raise BadInput(f"{run}: holds {n_checkpoints} checkpoints and no {ATTENTION}; expected two or more")
    everywhere = measured(run, circuit, n_sequences, seed, progress)
    return Emergence(circuit, everywhere, losses, f"{n_checkpoints} checkpoints, {n_sequences} sequences each")


def measured(
    run: Path,
    circuit: Circuit,
    n_sequences: int,
    seed: int,
    progress: Callable[[float], None],
) -> pd.DataFrame:
    """The attention along every possible path, checkpoint by checkpoint."""
    kept = checkpoints(run)
    model, task = load_model(run, next(iter(kept.values())))
    examples = task.examples(n_sequences, seed)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    paths = possible_paths(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    rows = {}
    for step, then in through_training(run):
        rows[step] = path_attention(then, examples, paths).tolist()
        progress(len(rows) / len(kept))
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=[str(path) for path in paths])
    return frame.rename_axis("step")


def read_attention(path: Path) -> pd.DataFrame:
    """The kept table of attention along paths.

    Raises:
        BadInput: it is no such table.
    """
    text = read_text(path, "a table of attention along paths")
    try:
        frame = pd.read_csv(io.StringIO(text), comment="#").set_index("step").astype(float)
        frame.index = frame.index.astype(int)
    except (ValueError, KeyError, OverflowError) as error:
        raise BadInput(f"{path}: not a table of attention along paths ({error})") from error
    if len(frame) < 2 or not frame.index.is_monotonic_increasing or not frame.index.is_unique:
        raise BadInput(f"{path}: expected two steps or more, in rising order")
    if not ((frame >= 0) & (frame <= 1.0001)).all(axis=None):
        raise BadInput(f"{path}: holds attention that is not between 0 and 1")
    return frame


def read_losses(path: Path) -> pd.DataFrame:
    """The losses of a training log: ``loss``, the partial losses, and ``validation`` where it was measured.

    Raises:
        BadInput: the log is missing, or a line of it is not what training writes.
    """
    rows: dict[int, dict[str, float]] = {}
    for number, line in enumerate(read_text(path, "the log of a run").splitlines(), start=1):
        try:
            record = json.loads(line)
            if not record["parts"]:
                raise ValueError("no partial losses")
            row = {"loss": float(record["loss"]), **_numbers(record["parts"])}
            row["validation"] = float(record["validation"]["loss"]) if "validation" in record else math.nan
            rows[int(record["step"])] = row
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}: not a line of a training log ({error})") from error
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("step").sort_index()


def _numbers(parts: Mapping[str, object]) -> dict[str, float]:
    return {str(name): float(value) for name, value in parts.items()}  # type: ignore[arg-type]
