"""The outcome of a validation: verdicts on single steps, and statements that combine them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

REPORT_FILES = ("report.json", "report.md", "report.html")
Outcome = Literal["passed", "failed", "undetermined"]
Protocol = Literal["extended", "paper"]  # every check, or Appendix E to the letter
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
STATEMENTS = {  # the statements about a circuit, each with its steps
    "accounts for the output": ("unablated", "step 4", "step 5"),
    "faithful": ("faithful",),
    "complete": ("complete",),
    "minimal": ("step 6", "alternative targets", "merges"),
    "each head alone": ("step 3",),
}
REQUIRED = ("accounts for the output", "faithful")  # a circuit holds only if these statements hold


@dataclass(frozen=True)
class Verdict:
    """The outcome of one step, and a sentence that explains it.

    ``undetermined`` means that the step neither confirms nor contradicts the hypothesis. Examples: in step 3 no
    mechanism keeps the loss low for some head alone; a path has alternative targets.
    """

    step: str
    outcome: Outcome
    sentence: str

    @property
    def passed(self) -> bool:
        """Whether the step did not fail."""
        return self.outcome != "failed"

    def to_json(self) -> dict[str, Any]:
        """Return ``step``, ``outcome``, ``passed`` and ``sentence``."""
        return {"step": self.step, "outcome": self.outcome, "passed": self.passed, "sentence": self.sentence}


Decision = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Statement:
    """One statement about a circuit.

    Attributes:
        name: one of ``STATEMENTS``.
        verdicts: the verdicts of its steps.
    """

    name: str
    verdicts: tuple[Verdict, ...]

    @property
    def decision(self) -> Decision:
        """``fails`` if a step failed, ``holds`` if all steps were passed, else ``undecided``."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return "fails" if "failed" in outcomes else "holds" if outcomes == {"passed"} else "undecided"
