"""The results in Inspect's logs: one row for each model, formulation and size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from inspect_ai.log import EvalLog, EvalSampleSummary, list_eval_logs, read_eval_log, read_eval_log_sample_summaries
from inspect_ai.scorer import CORRECT, NOANSWER

from circuits.errors import BadInput, whole
from circuits.utils.files import read_text
from circuits.utils.lazy import pandas as pd
from retrieval_interp.llm.tasks import MOST_ATTEMPTS
from retrieval_interp.prompts import FORMULATIONS, formulation
from retrieval_interp.results import Interval

ASKED = ("attempts", "forced_choice", "shots", "max_tokens", "temperature")
KEY = ("model", "formulation", "steps", "chains", "seed", "questions", *ASKED)
COLUMNS = (*KEY, "asked", "right", "exhausted", "failed", "accuracy", "low", "high", "chance")

LARGEST_LOG = 256 * 2**20  # most bytes read at once; the samples of a packed log do not count


def logs_in(folder: Path) -> list[Path]:
    """Return the paths of Inspect's logs in a folder; BadInput if there is no such folder."""
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
        ``attempts``, ``forced_choice``, ``shots``, ``max_tokens``, ``temperature``: the options of asking;
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
    rows = []
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
        rows.append({**row, "written": path.stat().st_mtime_ns})
    if not rows:
        raise BadInput(f"none of {len(logs)} logs is of these tasks; expected {', '.join(FORMULATIONS)}")
    table = pd.DataFrame(rows, columns=[*COLUMNS, "written"]).astype({"steps": "Int64"})
    table = table.sort_values(["asked", "written"]).drop_duplicates([*KEY], keep="last").drop(columns="written")
    names = list(FORMULATIONS)
    return table.sort_values(
        ["model", "formulation", "steps", "seed", "attempts"],
        key=lambda column: column.map(names.index) if column.name == "formulation" else column,
        ignore_index=True,
    )


def _row(log: EvalLog, samples: Sequence[EvalSampleSummary]) -> dict[str, Any]:
    described = {"forced_choice": False, "shots": 0, **(log.eval.metadata or {})}  # which older logs do not have
    kind = formulation(described["formulation"], described["steps"], described["chains"])
    whole("seed", described["seed"], 0, 2**63 - 1)
    whole("attempts", described["attempts"], 1, MOST_ATTEMPTS)
    values = [next(iter(sample.scores.values())).value for sample in samples if sample.scores]
    right = values.count(CORRECT)
    share = Interval.of_share(right, len(values)) if values else Interval(float("nan"), 0.0, 1.0)
    return {
        "model": str(log.eval.model),
        **{name: described[name] for name in ("formulation", "steps", "chains", "seed", *ASKED[:3])},
        "questions": log.eval.dataset.samples or 0,
        "max_tokens": log.plan.config.max_tokens,
        "temperature": log.plan.config.temperature,
        "asked": len(values),
        "right": right,
        "exhausted": values.count(NOANSWER),
        "failed": sum(bool(sample.error) for sample in samples),
        "accuracy": share.mean,
        "low": share.low,
        "high": share.high,
        "chance": kind.chance,
    }
