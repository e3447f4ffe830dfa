"""What Inspect's logs say: one row for each model, formulation and size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from inspect_ai.log import EvalLog, EvalSampleSummary, list_eval_logs, read_eval_log, read_eval_log_sample_summaries
from inspect_ai.scorer import CORRECT

from circuits.errors import BadInput, check_size
from circuits.losses.interval import Interval
from circuits.utils.files import read_text
from circuits.utils.lazy import pandas as pd
from retrieval_interp.llm.tasks import MOST_ATTEMPTS, is_exhausted
from retrieval_interp.prompts import FORMULATIONS, formulation

KEY = ("model", "formulation", "steps", "chains", "seed", "questions", "attempts", "max_tokens", "temperature")
COLUMNS = (*KEY, "asked", "right", "exhausted", "failed", "accuracy", "low", "high", "chance")

LARGEST_LOG = 256 * 2**20  # bytes of what is read at once: of a packed log all but the samples


def logs_in(folder: Path) -> list[Path]:
    """Inspect's logs in a folder.

    Raises:
        BadInput: there is no such folder.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder (expected one with Inspect's logs)")
    return [path_of(info.name) for info in list_eval_logs(str(folder))]


def path_of(location: str) -> Path:
    """The file of a log; Inspect writes the scheme before it, and nothing else differently."""
    return Path(location.removeprefix("file://"))


def read_header(path: Path) -> EvalLog:
    """What was asked of whom, without the answers.

    Raises:
        BadInput: it would fill the memory.
        ValueError: it is neither packed nor JSON.
        Exception: whatever Inspect makes of a damaged file.
    """
    if path.suffix == ".eval":
        with ZipFile(path) as packed:
            size = sum(one.file_size for one in packed.infolist() if not one.filename.startswith("samples/"))
        if size > LARGEST_LOG:
            raise BadInput(f"{size} bytes to be read at once; expected {LARGEST_LOG} at most")
    else:  # the parser that Inspect uses, in C, does not survive a number of five thousand digits
        json.loads(read_text(path, "a log of Inspect", LARGEST_LOG))
    return read_eval_log(str(path), header_only=True)


def results(logs: Sequence[Path], unreadable: Callable[[str], None] = lambda line: None) -> pd.DataFrame:
    """The results of these logs, also of those whose run was cut short: whatever was asked counts.

    Of several logs of the same model, size, seed and options the one with the most answers counts, of these the newest.
    Logs of other tasks are left out.

    Columns: ``model``, ``formulation``, ``steps`` (none where they cannot be chosen), ``chains``, ``seed``;
    ``questions``, how many there are; ``attempts``, ``max_tokens`` and ``temperature``, with which they were asked;
    ``asked``, how many of them were finished; of those ``right``, and ``exhausted``, to which no acceptable answer came
    (never right); ``failed``, those that ended with an error or were interrupted, which are not among the asked;
    ``accuracy``, right of asked, with Wilson's 95% interval, ``low`` to ``high``; ``chance``.

    Args:
        logs: the files.
        unreadable: is told of every file that cannot be read.

    Raises:
        BadInput: none of them is a log of these tasks.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in logs:
        try:
            log = read_header(path)
            if (log.eval.metadata or {}).get("formulation") not in FORMULATIONS:
                continue
            row = _row(log, read_eval_log_sample_summaries(str(path)))
        except Exception as error:  # whatever Inspect makes of a damaged file
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            unreadable(f"{path}: left out, not a whole log of Inspect ({reason})")
            continue
        key, rank = tuple(row[column] for column in KEY), (row["asked"], path.stat().st_mtime_ns)
        if key not in rows or rank > (rows[key]["asked"], rows[key]["written"]):
            rows[key] = {**row, "written": rank[1]}
    if not rows:
        raise BadInput(f"{len(logs)} logs, none of them of these tasks; expected {', '.join(FORMULATIONS)}")
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
    kind = formulation(described["formulation"], described["steps"], described["chains"])
    check_size("seed", described["seed"], 0, 2**63 - 1)
    attempts = described.get("attempts")  # older logs do not say it
    if attempts is not None:
        check_size("attempts", attempts, 1, MOST_ATTEMPTS)
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
