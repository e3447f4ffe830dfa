"""Numbers with standard errors: decisions on them, and tables of records that have some."""

from __future__ import annotations

from collections.abc import Iterable

from circuits.losses.loss import Loss, Mean
from circuits.results import Decision, Result
from circuits.utils.lazy import pandas


def above(number: Loss | Mean, threshold: float) -> Decision:
    """Return whether a number is at least a threshold; undecided within three standard errors."""
    return "undecided" if number.near(threshold) else "holds" if number.mean >= threshold else "fails"


def table(records: Iterable[Result]) -> pandas.DataFrame:
    """Return one row for every record; a number stands beside its standard error, ``name`` beside ``name_se``."""
    rows = pandas.json_normalize([one.model_dump(mode="json") for one in records])
    nested = {name.rpartition(".")[0] for name in map(str, rows)}  # a column of its own only in records without it
    names = {name: name.removesuffix(".mean").replace(".standard_error", "_se") for name in map(str, rows)}
    return rows.drop(columns=[name for name in nested & {*rows} if rows[name].isna().all()]).rename(columns=names)
