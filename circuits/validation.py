"""Test a circuit against a model. Each line says what holds if the statement holds, and where it is tested:

    solves      the circuit does the task as well as the model, with every head replaced or idle (checks/agreement.py)
    agrees      its outputs are the model's (Shi et al. 2024; checks/agreement.py)
    faithful    its heads alone are enough, all others ablated (Wang et al. 2022; checks/faithfulness.py)
    complete    no other heads do their work (Wang et al. 2022; checks/completeness.py)
    carries     the answer can flow along it, and it steers itself (Geiger et al. 2021; checks/carries.py)
    minimal     no path and no positional head is superfluous (Wang et al. 2022; checks/minimality.py)

A circuit holds if all of these hold. Beside them stand other circuits that do as well (checks/uniqueness.py), and
Appendix E of the paper to the letter (checks/paper_protocol.py), which is not run on models with many heads.
"""

from circuits.checks.agreement import agreement, solves
from circuits.checks.carries import carries
from circuits.checks.completeness import complete, completeness
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.checks.minimality import minimal, minimality
from circuits.checks.paper_protocol import paper_protocol
from circuits.checks.uniqueness import uniqueness
from circuits.circuit import Circuit, Head
from circuits.discovery.soft_paths import soft_paths
from circuits.entrance import entrance
from circuits.model.transformer import Transformer
from circuits.report.report import Report, statements_of
from circuits.results import together
from circuits.settings import current
from circuits.split import sizes
from circuits.task import Task
from circuits.utils.progress import part_of, shown


@entrance
def validate(
    model: Transformer, task: Task, circuit: Circuit, *, n_examples: int = 1024, seed: int = 0, threshold: float = 0.05
) -> Report:
    """Test a circuit against a model. Every check can also be called by itself.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, and a loss.
        circuit: the hypothesis.
        n_examples: the number of fresh examples.
        seed: the seed of the examples; the same seed gives the same report.
        threshold: a loss counts as low if it exceeds the model's own by less than this share of the range, which is the
            loss with all heads idle minus the model's own. For Appendix E to the letter it is a loss, as in the paper.

    Raises:
        BadInput: the circuit names no head or does not fit the model, or a number is out of range.
        Unsolved: the model's heads do nothing for the task.
    """
    experiment = Experiment(model, task, circuit, n_examples=n_examples, seed=seed, threshold=threshold)
    with shown(None, "validating") as progress:
        scale, solved, agrees = experiment.scale, solves(experiment), agreement(experiment)
        progress(0.1)
        faithful = faithfulness(experiment)
        progress(0.2)
        knockouts = completeness(experiment, part_of(progress, 0.2, 0.6))
        carried = carries(experiment)
        progress(0.7)
        parts = minimality(experiment)
        progress(0.8)
        others = uniqueness(experiment, parts)
        progress(0.9)
        paper = None if experiment.many else paper_protocol(experiment)
    statements = statements_of(
        {
            "solves": (solved,),
            "agrees": agrees.verdicts,
            "faithful": faithful.verdicts,
            "complete": (complete(experiment, knockouts),),
            "carries": carried.verdicts,
            "minimal": (minimal(experiment, parts),),
        }
    )
    report = Report(
        decision=together(one.decision for one in statements),
        statements=statements,
        circuit=circuit,
        threshold=threshold,
        n_examples=experiment.n_examples,
        seed=experiment.seed,
        settings=current(),
        scale=scale,
        combined=experiment.combined,
        up_to=experiment.up_to,
        split=sizes(task),
        agreement=agrees,
        faithfulness=faithful,
        knockouts=knockouts,
        carries=carried,
        parts=parts,
        uniqueness=others,
        paper=paper,
        first=experiment.first if experiment.many else {},
        attends=_attends(experiment) if experiment.many else {},
    )
    report._experiment = experiment
    return report


def _attends(experiment: Experiment) -> dict[Head, str]:
    """Return what the roles look at in the heads that look at content, on average over a few examples."""
    few = experiment.test.examples.take(slice(0, current().ranked))
    shown = soft_paths(experiment.model, few)
    return {head: str(shown[head]) for head in experiment.looking if head in shown}
