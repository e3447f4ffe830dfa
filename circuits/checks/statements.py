"""What a validation can say of a circuit: verdicts on single steps, and the statements that rest on them."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

REPORT_FILES = ("report.json", "report.md", "report.html")  # in which it is said
Outcome = Literal["passed", "failed", "undetermined"]
Protocol = Literal["extended", "paper"]  # every check, or Appendix E to the letter
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
STATEMENTS = {  # what a validation can say of a circuit, and the steps that it rests on
    "accounts for the output": ("unablated", "step 4", "step 5"),
    "faithful": ("faithful",),
    "complete": ("complete",),
    "minimal": ("step 6", "alternative targets", "merges"),
    "each head alone": ("step 3",),
}
REQUIRED = ("accounts for the output", "faithful")  # without which a circuit does not hold


@dataclass(frozen=True)
class Verdict:
    """One step's outcome, with a sentence for people.

    ``undetermined``: nothing speaks against the hypothesis, but something is left open. In step 3, no mechanism tried
    replaces some of the heads alone; among the rivals, a path could as well lead elsewhere.
    """

    step: str
    outcome: Outcome
    sentence: str

    @property
    def passed(self) -> bool:
        """Whether the step does not speak against the circuit."""
        return self.outcome != "failed"

    def to_json(self) -> dict[str, Any]:
        """``step``, ``outcome``, ``passed`` and ``sentence``."""
        return {"step": self.step, "outcome": self.outcome, "passed": self.passed, "sentence": self.sentence}


Decision = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class Statement:
    """What is said of a circuit, and the verdicts that it rests on.

    Attributes:
        name: one of ``STATEMENTS``.
        verdicts: of its steps.
    """

    name: str
    verdicts: tuple[Verdict, ...]

    @property
    def decision(self) -> Decision:
        """``fails`` if a step failed, ``holds`` if all were passed, else ``undecided``."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return "fails" if "failed" in outcomes else "holds" if outcomes == {"passed"} else "undecided"
