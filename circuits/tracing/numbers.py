"""Tables of records that have numbers with standard errors."""

from __future__ import annotations

from collections.abc import Iterable

from circuits.results import Result
from circuits.utils.lazy import pandas


def table(records: Iterable[Result]) -> pandas.DataFrame:
    """Return one row for every record; a number stands beside its standard error, ``name`` beside ``name_se``."""
    rows = pandas.json_normalize([one.model_dump(mode="json") for one in records])
    nested = {name.rpartition(".")[0] for name in map(str, rows)}  # a column of its own only in records without it
    names = {name: name.removesuffix(".mean").replace(".standard_error", "_se") for name in map(str, rows)}
    return rows.drop(columns=[name for name in nested & {*rows} if rows[name].isna().all()]).rename(columns=names)
