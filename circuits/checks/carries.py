"""Carries: can the answer flow along the circuit, and does the circuit steer itself?

The loss does not show this: replaced attention needs no reason to look where it does. Information must be able to flow
along paths and fixed patterns to the answer, in every instance (the flow check; paper, section 5), and the heads with
paths must find their targets by themselves in what the replaced heads below them write (self-consistency; a causal
abstraction asks the same of a high-level model, Geiger et al. 2021).
"""

from circuits.checks.experiment import Experiment, verdict
from circuits.checks.self_consistency import SelfConsistency, looks, steering_itself
from circuits.flow.flow_check import FlowCheck, flow_check
from circuits.results import Result, Verdict


class Carries(Result):
    """The flow check and self-consistency.

    Attributes:
        verdicts: those that apply.
        flow: the flow check; None if the task has no layout.
        self_consistency: None if the circuit has no path between roles.
    """

    verdicts: tuple[Verdict, ...]
    flow: FlowCheck | None
    self_consistency: SelfConsistency | None


def carries(experiment: Experiment) -> Carries:
    """Run the flow check and self-consistency, where they apply."""
    flow = flow_check(experiment.circuit, experiment.task)
    itself = None
    if looks(experiment.circuit):
        itself = steering_itself(experiment)
    no_path = verdict("self-consistent", "The circuit has no path between roles, so no head has to find one.")
    verdicts, unnamed = [flow.verdict] if flow else [], len(experiment.all_heads) - len(experiment.circuit.heads)
    if flow and unnamed and flow.verdict.decision == "fails":
        said = f"{flow.verdict.sentence} Heads that the circuit does not name may bring more: {unnamed}."
        verdicts = [flow.verdict.model_copy(update={"decision": "undecided", "sentence": said})]
    return Carries(verdicts=(*verdicts, itself.verdict if itself else no_path), flow=flow, self_consistency=itself)
