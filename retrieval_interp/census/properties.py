"""Rule or luck: which properties do the circuits of all seeds share, and which does the seed decide? (docs/protocol.md)

A property is a *rule* if at least 90% of the models that solve their task have it, an *exception* if at most 10% have
it, and *luck* otherwise. It is *undecided* if the models for which it is undecided could change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from circuits.losses.interval import Interval
from circuits.utils.lazy import pandas as pd
from retrieval_interp.census.census import Examined, Finding
from retrieval_interp.census.census_table import table

RULE, EXCEPTION = 0.9, 0.1  # the limits of the share of models that have the property
JUDGED = ("faithful", "complete", "minimal")  # of ``STATEMENTS``
MEANINGS = {
    "rule": f"rules, at least {RULE:.0%} of the models that solve the task",
    "exception": f"exceptions, at most {EXCEPTION:.0%}",
    "luck": "luck, the seed decides",
    "undecided": "undecided, as it is for too many models",
}
COLUMNS = ("preset", "property", "have_it", "undecided", "solved", "share", "low", "high", "verdict", "clear")


@dataclass(frozen=True)
class Held:
    """Whether the models of a preset have a property.

    Attributes:
        each: for every model that solves its task: whether its circuit has the property; None if that is undecided.
    """

    each: tuple[bool | None, ...]

    @property
    def number(self) -> int:
        """The number of models that have the property; undecided ones do not count."""
        return sum(own is True for own in self.each)

    @property
    def share(self) -> Interval:
        """Their share of the models that solve the task, with Wilson's interval."""
        return Interval.of_share(self.number, len(self.each))

    @property
    def verdict(self) -> str:
        """``rule``, ``exception`` or ``luck``; ``undecided`` if the undecided models could make it another."""
        most = self.number + self.each.count(None)
        return kind if (kind := _kind(self.share.mean)) == _kind(most / len(self.each)) else "undecided"

    @property
    def clear(self) -> bool:
        """Whether both ends of the interval have the same verdict."""
        return _kind(self.share.low) == _kind(self.share.high)


def _kind(share: float) -> str:
    return "rule" if share >= RULE else "exception" if share <= EXCEPTION else "luck"


def properties(examined: Sequence[Examined]) -> pd.DataFrame:
    """Return a row for every preset and property.

    Columns: ``preset``; ``property``; ``have_it``, the number of models that have it; ``undecided``, the seeds of those
    for which it is undecided; ``solved``, the number of models that solve their task; ``share``, ``low`` and
    ``high``, the share of these that have it, with Wilson's 95% interval; ``verdict`` and ``clear``, see ``Held``. A
    preset of which no model solves the task has no rows.
    """
    rows = []
    for preset in dict.fromkeys(one.finding.preset for one in examined):
        solved = [one for one in examined if one.finding.preset == preset and one.finding.solved]
        each = [_of_model(one) for one in solved]
        for name in each[0] if each else ():
            held = Held(tuple(own[name] for own in each))
            seeds = [one.finding.seed for one, whether in zip(solved, held.each, strict=True) if whether is None]
            share = held.share
            numbers = (held.number, " ".join(map(str, seeds)), len(solved), share.mean, share.low, share.high)
            rows.append(dict(zip(COLUMNS, (preset, name, *numbers, held.verdict, held.clear), strict=True)))
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _of_model(one: Examined) -> dict[str, bool | None]:
    """Return the properties of a model's circuit; without a circuit it has none."""
    finding, (_, row) = one.finding, next(table([one]).iterrows())
    decided = {"holds": True, "fails": False}
    found = {
        "the circuit explains the model": finding.explains,
        "it holds": _holds(finding),
        **{f"it is {name}": decided.get(finding.statements.get(name, "")) for name in JUDGED},
        "its first layer with paths only joins the members of pairs": row["joins_first"],
        "only the query fetches, one symbol after another": row["walks"],
        "some content head has paths on some slots only": finding.divided > 0,
        "it has the fewest heads that information flow allows": row["heads"] == row["least"],
        "it is the only one": decided.get(finding.only_one or ""),
    }
    return {name: (None if own is None else bool(own)) if finding.found else False for name, own in found.items()}


def _holds(finding: Finding) -> bool | None:
    """Return whether all statements hold; None if none fails and some are undecided."""
    decisions = {*finding.statements.values()}
    return False if "fails" in decisions or not finding.holds else True if decisions == {"holds"} else None


def rules(rows: pd.DataFrame) -> list[str]:
    """Return a sentence for every preset and verdict, with the properties that have this verdict.

    Args:
        rows: the rows of ``properties``.
    """
    told = []
    for preset, own in rows.groupby("preset", sort=False):
        for verdict, meaning in MEANINGS.items():
            names = [
                f"{row['property']} ({row['have_it']} of {row['solved']} [{row['low']:.2f}, {row['high']:.2f}]"
                f"{'' if row['clear'] else ', the interval reaches over the limit'}"
                f"{', undecided: seeds ' + row['undecided'] if row['undecided'] else ''})"
                for row in own[own["verdict"] == verdict].to_dict("records")
            ]
            told.append(f"{preset}: {meaning}: {'; '.join(names) or 'none'}.")
    return told
