"""The results in Inspect's logs: one row for each model, formulation and size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from inspect_ai.log import EvalLog, EvalSampleSummary, list_eval_logs, read_eval_log, read_eval_log_sample_summaries
from inspect_ai.scorer import CORRECT

from circuits.errors import BadInput, whole
from circuits.losses.interval import Interval
from circuits.utils.files import read_text
from circuits.utils.lazy import pandas as pd
from retrieval_interp.llm.tasks import MOST_ATTEMPTS, is_exhausted
from retrieval_interp.prompts import FORMULATIONS, formulation

KEY = ("model", "formulation", "steps", "chains", "seed", "questions", "attempts", "max_tokens", "temperature")
COLUMNS = (*KEY, "asked", "right", "exhausted", "failed", "accuracy", "low", "high", "chance")

LARGEST_LOG = 256 * 2**20  # most bytes read at once; the samples of a packed log do not count


def logs_in(folder: Path) -> list[Path]:
    """Return the paths of Inspect's logs in a folder.

    Raises:
        BadInput: there is no such folder.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder (expected one with Inspect's logs)")
    return [path_of(info.name) for info in list_eval_logs(str(folder))]


def path_of(location: str) -> Path:
    """Return the path of a log; Inspect puts ``file://`` before it and changes nothing else."""
    return Path(location.removeprefix("file://"))


def read_header(path: Path) -> EvalLog:
    """Read a log without its samples.

    Raises:
        BadInput: the log is too large.
        ValueError: the log is neither packed nor JSON.
        Exception: the log is damaged; Inspect raises many types.
    """
    if path.suffix == ".eval":
        with ZipFile(path) as packed:
            size = sum(one.file_size for one in packed.infolist() if not one.filename.startswith("samples/"))
        if size > LARGEST_LOG:
            raise BadInput(f"{size} bytes would be read at once; expected at most {LARGEST_LOG}")
    else:  # the C parser that Inspect uses crashes at a number of 5,000 digits
        json.loads(read_text(path, "a log of Inspect", LARGEST_LOG))
    return read_eval_log(str(path), header_only=True)


def results(logs: Sequence[Path], unreadable: Callable[[str], None] = lambda line: None) -> pd.DataFrame:
    """Return the results in logs, including logs of runs that did not finish.

    Of several logs with the same model, size, seed and options, the one with the most answers counts, and of these the
    newest. Logs of other tasks are left out.

    Columns:
        ``model``, ``formulation``, ``steps`` (empty if fixed), ``chains``, ``seed``;
        ``questions``: the number of questions;
        ``attempts``, ``max_tokens``, ``temperature``: the options of asking;
        ``asked``: the number of finished questions; of those ``right``, and ``exhausted`` without an acceptable answer
        (never right);
        ``failed``: the number of questions that ended with an error or were interrupted; they are not in ``asked``;
        ``accuracy``, ``low``, ``high``: right / asked, with Wilson's 95% interval;
        ``chance``: the accuracy of guessing among the acceptable answers.

    Args:
        logs: the paths of the logs.
        unreadable: is called with a message for every file that cannot be read.

    Raises:
        BadInput: none of the files is a log of these tasks.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in logs:
        try:
            log = read_header(path)
            if (log.eval.metadata or {}).get("formulation") not in FORMULATIONS:
                continue
            row = _row(log, read_eval_log_sample_summaries(str(path)))
        except Exception as error:  # Inspect raises many types for a damaged file
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            unreadable(f"{path}: left out, not a complete log of Inspect ({reason})")
            continue
        key, rank = tuple(row[column] for column in KEY), (row["asked"], path.stat().st_mtime_ns)
        if key not in rows or rank > (rows[key]["asked"], rows[key]["written"]):
            rows[key] = {**row, "written": rank[1]}
    if not rows:
        raise BadInput(f"none of {len(logs)} logs is of these tasks; expected {', '.join(FORMULATIONS)}")
    order = list(FORMULATIONS)
    table = pd.DataFrame(rows.values(), columns=list(COLUMNS)).astype({"steps": "Int64"})
    place = table["formulation"].map(order.index)
    ordered = table.assign(place=place).sort_values(["model", "place", "steps", "seed"])
    return ordered.drop(columns="place").reset_index(drop=True)


def shown_steps(steps: Any) -> str:
    """Return a number of steps as text; empty if the formulation fixes it."""
    return "" if pd.isna(steps) else str(steps)


def _row(log: EvalLog, samples: Sequence[EvalSampleSummary]) -> dict[str, Any]:
    described = log.eval.metadata or {}
    kind = formulation(described["formulation"], described["steps"], described["chains"])
    whole("seed", described["seed"], 0, 2**63 - 1)
    attempts = described.get("attempts")  # missing in older logs
    if attempts is not None:
        whole("attempts", attempts, 1, MOST_ATTEMPTS)
    scores = [next(iter(sample.scores.values())) for sample in samples if sample.scores]
    right = sum(score.value == CORRECT for score in scores)
    share = Interval.of_share(right, len(scores)) if scores else Interval(float("nan"), 0.0, 1.0)
    return {
        "model": str(log.eval.model),
        "formulation": kind.name,
        "steps": described["steps"],
        "chains": described["chains"],
        "seed": described["seed"],
        "questions": log.eval.dataset.samples or 0,
        "attempts": attempts,
        "max_tokens": log.plan.config.max_tokens,
        "temperature": log.plan.config.temperature,
        "asked": len(scores),
        "right": right,
        "exhausted": sum(is_exhausted(score) for score in scores),
        "failed": sum(bool(sample.error) for sample in samples),
        "accuracy": share.mean,
        "low": share.low,
        "high": share.high,
        "chance": kind.chance,
    }
