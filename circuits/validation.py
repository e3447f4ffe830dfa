"""Test a circuit against a model (paper, Appendix E).

Steps 1 and 2 of Appendix E state the hypothesis. The other steps run here, on fresh examples. Each line says what holds
if the step holds, and where it is tested:

    unablated            the model solves its task
    step 3               each head alone can be replaced with its hypothesised mechanism (checks/heads_alone.py)
    step 4               every head of the model has a mechanism
    step 5               all heads can be replaced at once
    faithful             the circuit's heads are enough (Wang et al. 2022; checks/faithfulness.py)
    complete             no other heads do their work (Wang et al. 2022; checks/faithfulness.py)
    step 6               no attention path can be removed (checks/removals.py)
    alternative targets  no attention path could lead to another role instead (ours: not in the paper)
    merges               no two heads can be merged into one (the paper's transformer A, section 8.2; checks/merging.py)
"""

from circuits.checks.experiment import Experiment, is_low
from circuits.checks.faithfulness import faithfulness
from circuits.checks.heads_alone import each_head_alone, step_3, step_4
from circuits.checks.merging import merges, merging
from circuits.checks.paper_protocol import paper_protocol
from circuits.checks.removals import alternative_targets, removals, step_6
from circuits.circuit import Circuit
from circuits.entrance import entrance
from circuits.flow.flow_check import flow_check
from circuits.model.transformer import Transformer
from circuits.report.report import Report, decided, statements_of
from circuits.settings import current
from circuits.task import Task
from circuits.utils.progress import shown


@entrance
def validate(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    threshold: float = 0.05,
) -> Report:
    """Test a circuit against a model (paper, Appendix E, steps 3 to 6). Every check can also be called by itself.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, and a loss.
        circuit: the hypothesis.
        n_examples: the number of fresh examples.
        seed: the seed of the examples; the same seed gives the same report.
        threshold: a loss below it counts as low; the paper uses 0.05.

    Raises:
        BadInput: the circuit names no head or does not fit the model, or a number is out of range.
    """
    experiment = Experiment(model, task, circuit, n_examples=n_examples, seed=seed, threshold=threshold)
    with shown(None, "validating") as progress:
        unablated, combined, strict = experiment.unablated, experiment.combined, experiment.strict.threshold
        heads = each_head_alone(experiment)
        progress(0.3)
        paths = removals(experiment)
        progress(0.5)
        merged = merges(experiment, paths)
        progress(0.6)
        looks = experiment.content_or_position
        faithful = faithfulness(experiment)
        progress(0.9)
        paper = paper_protocol(experiment)
    statements = statements_of(
        (
            is_low("unablated", "The unablated loss", unablated, threshold),
            step_3(heads, threshold),
            step_4([head for head in looks.alone if head not in circuit.heads]),
            is_low("step 5", "With all heads replaced the loss", combined, threshold),
            faithful.faithful(len(looks.alone), threshold),
            faithful.complete(threshold),
            step_6(paths, combined, strict),
            alternative_targets(paths, combined, strict),
            merging(experiment, merged, paths),
        )
    )
    report = Report(
        decision=decided(statements),
        statements=statements,
        circuit=circuit,
        threshold=threshold,
        strict_threshold=strict,
        n_examples=experiment.n_examples,
        seed=experiment.seed,
        settings=current(),
        unablated=unablated,
        combined=combined,
        up_to=experiment.up_to,
        heads=heads,
        paths=paths,
        merges=merged,
        content_or_position=looks,
        faithfulness=faithful,
        paper=paper,
        flow=flow_check(circuit, task),
    )
    report._experiment = experiment
    return report
