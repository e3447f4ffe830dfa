"""The headline of a report as a strip of facts. Page, terminal, Markdown and model card say the same, from here."""

from __future__ import annotations

from typing import NamedTuple

from circuits.report.report import NOTHING, Report

MARKS = {"holds": "✓", "fails": "✗", "undecided": "?", "empty": "–", "partly": "◐", "number": ""}


class Fact(NamedTuple):
    """One fact: its kind (of ``MARKS``), what it says, and where on the page its evidence stands."""

    kind: str
    said: str
    at: str

    def __str__(self) -> str:
        return f"{MARKS[self.kind]} {self.said}".strip()


def strip(report: Report) -> tuple[Fact, ...]:
    """Return the facts; a statement says nothing where there is no head to ablate, or no path to follow."""
    by_letter = ", by Appendix E to the letter" if report.protocol == "paper" else ""
    whole = {"undecided": "undecided whether the circuit holds"}.get(report.decision, f"the circuit {report.decision}")
    facts = [Fact(report.decision, whole + by_letter, "statements")]
    for one in report.all_statements:
        empty = report.says_nothing.get(one.name)
        said = f"{one.name} {NOTHING} ({empty})" if empty else one.name
        facts.append(Fact("empty" if empty else one.decision, said, one.name.replace(" ", "-")))
    if (flow := report.carries.flow) and flow.known_in:
        name, share = min(flow.known_in.items(), key=lambda item: item[1])
        answer = "every answer" if share == 1 else name
        said = f"paths and fixed patterns can carry {answer} in {100 * share:.0f}% of instances"
        facts.append(Fact("holds" if share == 1 else "partly", said, "flow"))
    own, limit = report.scale.own.mean, report.scale.own.mean + report.threshold * report.scale.width
    said = f"loss {report.combined.loss.mean:.4f} with the circuit in place of the heads, {own:.4f} the model's own, "
    said += f"{report.scale.none.mean:.4f} with all heads idle, on {report.combined.loss.n_examples} "
    said += f"fresh examples (seed {report.seed}); low is below {limit:.4f} (threshold {report.threshold:g})"
    facts.append(Fact("number", said, "losses-table"))
    return tuple(facts)
