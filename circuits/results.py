"""The base of all results: pydantic models, which are written as JSON and read back.

``model_dump_json`` writes, ``model_validate_json`` reads. Heads and paths are texts in JSON, circuits are YAML. A
decision is one of the same three words everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, PlainSerializer, PlainValidator

from circuits.utils.lazy import pandas

REPORT, PAGE, SUMMARY = "report.json", "report.html", "report.md"  # the files of a report
Decision = Literal["holds", "fails", "undecided"]
Protocol = Literal["extended", "paper"]  # every check, or Appendix E of the paper to the letter
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]  # null in JSON is NaN


class Result(BaseModel):
    """A result that does not change; NaN is null in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Verdict(Result):
    """The decision on one step or statement, with the sentence that says why.

    Attributes:
        name: the step or statement.
        decision: ``holds``, ``fails``, or ``undecided`` if the numbers neither confirm nor contradict it.
        sentence: one or two sentences with the numbers.
    """

    name: str
    decision: Decision
    sentence: str


def together(decisions: Iterable[Decision]) -> Decision:
    """Return ``fails`` if one fails, ``holds`` if all hold, else ``undecided``."""
    made = {*decisions}
    return "fails" if "fails" in made else "holds" if made == {"holds"} else "undecided"


def as_text(handler: GetCoreSchemaHandler, kind: type, read: Callable[[Any], Any]) -> Any:
    """Return pydantic's schema of a class that JSON holds as text, also as a key; ``read`` makes one from its text."""

    def made(value: Any) -> Any:
        if not isinstance(value, kind | str):
            raise ValueError(f"got {type(value).__name__}; expected a text")
        return value if isinstance(value, kind) else read(value)

    return handler.generate_schema(Annotated[Any, PlainValidator(made), PlainSerializer(str)])


def table(records: Iterable[Result]) -> pandas.DataFrame:
    """Return one row for every record; a number stands beside its standard error, ``name`` beside ``name_se``."""
    rows = pandas.json_normalize([one.model_dump(mode="json") for one in records])
    nested = {name.rpartition(".")[0] for name in map(str, rows)}  # a column of its own only in records without it
    names = {name: name.removesuffix(".mean").replace(".standard_error", "_se") for name in map(str, rows)}
    return rows.drop(columns=[name for name in nested & {*rows} if rows[name].isna().all()]).rename(columns=names)
