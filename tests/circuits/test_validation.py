import json
from dataclasses import replace

import pytest
import torch
from circuits.checks.removals import _doubtful, alternative_targets, removals, step_6

from circuits import Circuit, FixedPattern, Head, OneHot, Report, Roles, discover, load_circuit, save_circuit, validate
from circuits.averages import averages
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms import Previous, Uniform
from tests.handmade import ChainTask
from tests.refusals import assert_refused


@pytest.fixture(scope="module")
def right(model, task, circuit):
    return validate(model, task, circuit, n_examples=64)


@pytest.fixture(scope="module")
def redirected(model, task, circuit):
    """Of a circuit whose path leads to the wrong role."""
    return validate(model, task, circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"})), n_examples=64)


def test_the_right_circuit_is_accepted(right):
    report = right
    assert report.decision == "holds", report.headline
    assert report.unablated.mean < 0.001
    assert report.combined.mean < 0.001
    assert verdict(report, "merges").decision == "holds"  # both heads are needed
    # With the attention above replaced, nothing reads what the lower head wrote; left to itself, all fails.
    assert [path.needed for path in report.paths] == ["indirectly", "directly"]


def verdicts(report):
    return {verdict.name: verdict for statement in report.statements for verdict in statement.verdicts}


def verdict(report, step):
    return verdicts(report)[step]


def failed(report):
    return {name for name, verdict in verdicts(report).items() if verdict.decision == "fails"}


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        (lambda own: own.with_head(Head(0, 0), Previous()), set()),  # the same circuit
        # Without the path that answers.
        (lambda own: own.with_head(Head(1, 0), Uniform()), {"step 5", "faithful", "complete", "step 6"}),
        (lambda own: own.without_heads([Head(0, 0)]), {"step 4"}),  # silent about a head
    ],
)
def test_a_circuit_is_rejected_by_the_steps_that_its_fault_concerns_alone(model, task, circuit, change, steps):
    report = validate(model, task, change(circuit), n_examples=64)
    assert failed(report) == steps
    assert report.decision == ("fails" if steps else "holds"), report.headline


def test_a_circuit_without_the_path_that_enables_is_rejected_by_the_head_alone(model, task, circuit):
    report = validate(model, task, circuit.with_head(Head(0, 0), Uniform()), n_examples=64)
    assert failed(report) == {"step 3"}
    assert [(str(head.head), head.decision, head.simplest) for head in report.heads] == [
        ("L0H0", "fails", "previous"),
        ("L1H0", "holds", "one_hot"),
    ]


def test_a_head_that_no_mechanism_replaces_alone_is_left_to_the_combined_ablation(redirected):
    assert [head.decision for head in redirected.heads] == ["holds", "undecided"]
    assert verdict(redirected, "step 3").decision == "undecided"
    assert "L1H0" in verdict(redirected, "step 3").sentence


def test_a_circuit_with_a_path_too_many_is_rejected_by_step_6_alone(model, task, circuit):
    too_many = circuit.with_head(Head(1, 0), OneHot({"query": "pair1.second", "pair1.second": "pair1.first"}))
    report = validate(model, task, too_many, n_examples=64)
    assert failed(report) == {"step 6"}
    redundant = [str(path.path) for path in report.paths if path.needed == "no"]
    assert redundant == ["L1H0 pair1.second -> pair1.first"]


def test_a_circuit_with_a_path_redirected_is_rejected_and_the_right_role_named(redirected):
    assert "step 5" in failed(redirected)
    assert redirected.combined.mean > 1.5  # the answer is the wrong symbol: (1 - 0)² + (0 - 1)² = 2
    assert {path.needed for path in redirected.paths} == {"undecided"}  # of a circuit that is not low itself
    assert verdict(redirected, "alternative targets").decision == "fails"
    assert "L1H0 query -> pair1.first (pair1.second 0.0000" in verdict(redirected, "alternative targets").sentence


def test_every_path_is_led_to_every_other_role_that_its_source_can_see(right):
    low, high = right.paths
    assert low.retargeted == {}  # before pair1.second stands pair1.first alone
    assert list(high.retargeted) == ["pair1.first"]
    assert high.retargeted["pair1.first"].mean > 1.5
    assert high.alternative_targets == ()
    assert verdict(right, "alternative targets").decision == "holds"


class WithATwin:
    """The induction problem with a second name for pair1.second: no loss can tell the two apart."""

    roles = ("query", "pair1.first", "pair1.second", "twin")
    loss_components = ("x1",)
    output_roles = ("query",)

    def __init__(self, task):
        self.task = task
        self.losses = task.losses

    def examples(self, n, seed):
        examples = self.task.examples(n, seed)
        positions = examples.roles.positions
        return replace(examples, roles=Roles(self.roles, torch.cat([positions, positions[:, 2:]], dim=1)))


def test_a_path_that_could_as_well_lead_elsewhere_is_undetermined(model, task, circuit):
    report = validate(model, WithATwin(task), circuit, n_examples=64)
    assert report.paths[1].alternative_targets == ("twin",)
    assert report.paths[1].better_targets == ()
    assert verdict(report, "alternative targets").decision == "undecided"
    assert "L1H0 query -> pair1.second (twin)" in verdict(report, "alternative targets").sentence
    assert report.decision == "holds"

    rival = report.paths[1].model_copy(update={"better_targets": ("twin",)})
    assert alternative_targets([rival], report.combined, report.strict_threshold).decision == "fails"


def test_what_chance_could_decide_is_left_undecided(model, task, circuit, right, monkeypatch):
    # Paths are held to the threshold.
    monkeypatch.setattr("circuits.checks.experiment.strict_threshold", lambda full, combined, threshold: threshold)
    # The row made uniform costs 0.92, and the spread over examples is small: a threshold there cannot be decided.
    cost = right.paths[1].losses["uniform"]
    assert cost.standard_error > 0
    report = validate(model, task, circuit, n_examples=64, threshold=cost.mean - cost.standard_error)
    assert report.paths[1].needed == "undecided"
    undecided = step_6(report.paths[1:], report.combined, report.strict_threshold)
    assert undecided.decision == "undecided"
    assert "L1H0 query -> pair1.second" in undecided.sentence


@pytest.mark.parametrize(
    ("uniform", "identity", "needed"),
    [
        ({"whole": 0.01, 0: 0.01, 1: 0.5}, {"whole": 0.01, 0: 0.5, 1: 0.01}, "indirectly"),  # each loses another layer
        ({"whole": 0.01, 0: 0.01, 1: 0.01}, {"whole": 0.01, 0: 0.5, 1: 0.5}, "no"),  # made uniform nobody misses it
        ({"whole": 0.5, 0: 0.01, 1: 0.01}, {"whole": 0.01, 0: 0.01, 1: 0.5}, "indirectly"),
        ({"whole": 0.5, 0: 0.01, 1: 0.01}, {"whole": 0.01, 0: 0.05, 1: 0.01}, "undecided"),
    ],
)
def test_a_path_can_go_if_one_and_the_same_row_loses_nothing(uniform, identity, needed):
    path = AttentionPath(Head(0, 0), "query", "pair1.second")
    circuit = Circuit({Head(0, 0): OneHot({"query": "pair1.second"}), Head(1, 0): Uniform(), Head(2, 0): Uniform()})
    rows = {row: circuit.without(path, row) for row in ("uniform", "identity")}
    told = {"uniform": uniform, "identity": identity}
    losses = {row: {k: Loss(mean, 0.001, 64) for k, mean in own.items()} for row, own in told.items()}
    known = {rows[row].up_to(layer): losses[row][layer] for row in rows for layer in (0, 1)}
    known |= {rows[row]: losses[row]["whole"] for row in rows}

    class Told(SequentialTest):
        def __init__(self):
            self.threshold = 0.05

        def test(self, circuits, **how):
            return {key: DecidedLoss(known[one], "below") for key, one in circuits.items()}

    test = Told()
    assert _doubtful(test, rows, {0: test, 1: test}).needed == needed


@pytest.mark.slow
def test_heads_that_could_be_one_are_told_and_only_those():
    """The query takes x1 and x2 from the first pair, then x3 and x4 from the third, each filled by a head below."""
    joined = {f"pair{k}.second": f"pair{k}.first" for k in range(1, 5)}
    filled = {"L1H0": {"pair1.second": "pair2.second"}, "L1H1": {"pair3.second": "pair4.second"}}
    asked = {"L2H0": {"query": "pair1.second"}, "L3H0": {"query": "pair3.second"}}
    circuit, task = Circuit({"L0H0": joined, **filled, **asked}), ChainTask(4)
    report = validate(compile_circuit(circuit, task), task, circuit, n_examples=32)
    # L1H0 only tells the query where the third pair stands, so three heads are left. Of those the query's two exclude
    # each other; the third pair can be filled as late as x1 is fetched, or x1 be fetched as early as it is filled;
    # filled when the query comes for it, or visited when it is filled, it has no x4 yet.
    fewer = {str(merge) for merge in report.merges if merge.loss.mean < report.threshold}
    assert fewer == {"L1H1 into L2H0", "L2H0 into L1H1"}
    assert {str(merge) for merge in report.merges} - fewer == {"L1H1 into L3H0", "L3H0 into L1H1"}
    assert verdict(report, "merges").decision == "undecided"
    assert "Fewer heads" in verdict(report, "merges").sentence


def test_step_3_marks_the_simplest_mechanism_below_the_threshold(right):
    low, high = right.heads
    assert low.simplest == "previous"  # simpler than the one-hot hypothesis, and as good
    assert high.simplest == "one_hot"
    assert set(low.losses) == {"uniform", "identity", "previous", "one_hot"}


def test_the_same_seed_gives_the_same_report_and_another_seed_other_losses(model, task, circuit, right):
    again, other = (validate(model, task, circuit, n_examples=64, seed=seed) for seed in (0, 6))
    assert right == again
    assert right.unablated != other.unablated


def test_the_standard_error_is_the_spread_over_examples(model, task, circuit):
    report = validate(model, task, circuit, n_examples=2)
    losses = task.losses(model(task.examples(2, 0).inputs), task.examples(2, 0))[:, 0].double()
    assert report.unablated.mean == pytest.approx(losses.mean().item(), rel=1e-5)
    spread = (losses[0] - losses[1]).abs().item()
    assert report.unablated.standard_error == pytest.approx(spread / 2, rel=1e-3, abs=1e-9)


def test_a_report_is_read_back_equal(model, task, circuit, tmp_path):
    fixed = circuit.with_head(Head(0, 0), averages(model, task).patterns[Head(0, 0)])
    report = validate(model, task, fixed, n_examples=16).about({"model": "handmade"})
    save_circuit(Circuit({Head(0, 0): FixedPattern(torch.eye(4))}), tmp_path / "circuit.yaml")  # another circuit's
    report.save(tmp_path)
    again = Report.read(tmp_path / "report.json")
    assert again == report
    assert again.circuit.digest == fixed.digest
    assert load_circuit(tmp_path / "circuit.yaml").digest != fixed.digest
    again.save(tmp_path / "copy")  # without the model, and so without its attention
    assert Report.read(tmp_path / "copy") == report
    assert Report.model_validate_json(report.model_dump_json()) == report
    stored = json.loads(report.model_dump_json())
    for damaged in ("", "AAAA", "no base64", 3):
        stored["circuit"]["patterns"] = damaged
        (tmp_path / "damaged.json").write_text(json.dumps(stored))
        assert_refused("damaged.json: not a report of `validate`", Report.read, tmp_path / "damaged.json")
    with_discovery = report.model_copy(update={"discovery": discover(model, task, n_examples=32)})
    with_discovery.save(tmp_path / "other")
    assert Report.read(tmp_path / "other") == with_discovery
    assert again.about({"note": "read"}).metadata == {"model": "handmade", "note": "read"}


def test_tables_have_numbers(right):
    heads, paths = right.heads_table(), right.paths_table()
    assert heads.loc["L0H0", "previous"] == right.heads[0].losses["previous"].mean
    assert paths["row made uniform"].tolist() == [one.losses["uniform"].mean for one in right.paths]


def test_each_check_can_be_called_by_itself(model, task, circuit, right):
    experiment = Experiment(model, task, circuit, n_examples=64)
    assert removals(experiment) == right.paths
    assert faithfulness(experiment) == right.faithfulness


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_examples": 1}, "at least 2"),
        ({"threshold": 0.0}, "above 0"),
        ({"circuit": Circuit()}, "names no head"),
    ],
)
def test_what_cannot_be_validated_is_refused(model, task, circuit, arguments, message):
    assert_refused(message, validate, model, task, **{"circuit": circuit, **arguments})
