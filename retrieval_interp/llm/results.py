"""What Inspect's logs say: one row for each model, formulation and size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from inspect_ai.log import EvalLog, EvalSampleSummary, list_eval_logs, read_eval_log, read_eval_log_sample_summaries
from inspect_ai.scorer import CORRECT

from circuits.errors import BadInput
from circuits.statistics import Interval
from retrieval_interp.llm.tasks import is_exhausted
from retrieval_interp.prompts import FORMULATIONS

COLUMNS = (
    *("model", "formulation", "steps", "chains", "seed", "questions", "asked", "right", "exhausted", "failed"),
    *("accuracy", "low", "high", "chance"),
)


def results(folder: Path) -> pd.DataFrame:
    """The results of all logs in a folder, also of those that were cut off: whatever was asked counts.

    Of several logs of the same model, formulation, size and seed the one with the most answers counts.

    Columns: ``model``, ``formulation``, ``steps`` (none where they cannot be chosen), ``chains``, ``seed``;
    ``questions``, how many there are; ``asked``, how many of them were finished; of those ``right``, and ``exhausted``,
    to which no acceptable answer came (never right); ``failed``, those that ended with an error, which are not among
    the asked; ``accuracy``, right of asked, with Wilson's 95% interval, ``low`` to ``high``; ``chance``.

    Raises:
        BadInput: there is no such folder, it holds no log of these tasks, or one that cannot be read.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder (expected one with Inspect's logs)")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for info in sorted(list_eval_logs(str(folder)), key=lambda info: info.name):
        try:
            log = read_eval_log(info, header_only=True)
            if log.eval.task.removeprefix("retrieval_interp/") not in FORMULATIONS:
                continue
            row = _row(log, read_eval_log_sample_summaries(info))
        except Exception as error:  # whatever Inspect makes of a damaged file
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise BadInput(f"{info.name.removeprefix('file://')}: not a whole log of Inspect ({reason})") from error
        key = tuple(row[column] for column in COLUMNS[:5])
        if key not in rows or row["asked"] >= rows[key]["asked"]:
            rows[key] = row
    if not rows:
        raise BadInput(f"{folder}: holds no log of these tasks; expected {', '.join(FORMULATIONS)}")
    order = list(FORMULATIONS)
    table = pd.DataFrame(rows.values(), columns=list(COLUMNS)).astype({"steps": "Int64"})
    place = table["formulation"].map(order.index)
    ordered = table.assign(place=place).sort_values(["model", "place", "steps", "seed"])
    return ordered.drop(columns="place").reset_index(drop=True)


def shown_steps(steps: Any) -> str:
    """A number of steps for people; nothing where it cannot be chosen."""
    return "" if pd.isna(steps) else str(steps)


def _row(log: EvalLog, samples: Sequence[EvalSampleSummary]) -> dict[str, Any]:
    described = log.eval.metadata or {}
    scores = [next(iter(sample.scores.values())) for sample in samples if sample.scores]
    right = sum(score.value == CORRECT for score in scores)
    share = Interval.of_share(right, len(scores)) if scores else Interval(float("nan"), 0.0, 1.0)
    return {
        "model": str(log.eval.model),
        "formulation": described["formulation"],
        "steps": described["steps"],
        "chains": described["chains"],
        "seed": described["seed"],
        "questions": log.eval.dataset.samples or 0,
        "asked": len(scores),
        "right": right,
        "exhausted": sum(is_exhausted(score) for score in scores),
        "failed": sum(bool(sample.error) for sample in samples),
        "accuracy": share.mean,
        "low": share.low,
        "high": share.high,
        "chance": described["chance"],
    }
