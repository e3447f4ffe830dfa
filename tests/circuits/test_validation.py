"""Validation of circuits whose truth is planted: the true one holds, and each circuit one edit away does not."""

import json

import pytest
import torch

from circuits import Circuit, FixedPattern, Head, Report, discover, load_circuit, save_circuit, validate
from circuits.averages import averages
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.checks.minimality import minimality
from circuits.ground_truth import compile_circuit
from circuits.report.report import STATEMENTS
from circuits.settings import deciding
from tests.handmade import ChainTask, doubling_circuit
from tests.refusals import assert_refused

TASK, TRUE = ChainTask(2, n_chains=2), doubling_circuit()
WHOLE = Circuit({**TRUE.heads, **dict.fromkeys(("L0H1", "L1H1", "L2H1"), "idle")})


@pytest.fixture(scope="module")
def planted():
    return compile_circuit(TRUE, TASK, n_heads=2)


@pytest.fixture(scope="module")
def right(model, task, circuit):
    return validate(model, task, circuit, n_examples=256)


def not_holding(report):
    return {one.name for one in report.statements if one.decision != "holds"}


def test_the_true_circuit_holds_every_statement(planted, right):
    resampled = Circuit({**TRUE.heads, **dict.fromkeys(("L0H1", "L1H1", "L2H1"), "resample")})
    for report in (*(validate(planted, TASK, one, n_examples=256) for one in (WHOLE, resampled)), right):
        assert tuple(one.name for one in report.statements) == STATEMENTS
        assert {one.decision for one in report.statements} == {"holds"}
        assert report.decision == "holds"
        assert report.combined.loss.mean < 0.001
        assert len(repr(report)) < 500
        assert len(repr(report.circuit)) < 500


EDITS = {  # of the planted circuit, with the statements that they concern
    "a needed path dropped": (("L1H0", "uniform"), {"solves", "agrees", "carries", "minimal"}),
    "a path retargeted": (("L2H0", {"query": "pair1.first"}), {"solves", "agrees", "carries", "minimal"}),
    "a head with a path made idle": (("L1H0", "idle"), {"solves", "agrees", "faithful", "carries", "minimal"}),
    "a positional head made idle": (("L0H0", "idle"), {"faithful", "complete", "carries"}),
    "a path that only tells where to look dropped": (("L0H0", {"pair1.second": "pair1.first"}), {"carries"}),
    "all such paths dropped": (("L0H0", "identity"), {"carries"}),
    "a superfluous pattern of an idle head": (("L1H1", "identity"), {"minimal"}),
    "a superfluous path": (("L1H0", {"pair1.second": "pair2.second", "query": "pair1.first"}), {"carries", "minimal"}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_circuit_one_edit_away_does_not_hold(planted, edit):
    changed, concerned = EDITS[edit]
    with deciding(least=0.05, random_sets=2):  # few examples show that so little is lost
        report = validate(planted, TASK, WHOLE.with_head(*changed), n_examples=256)
    assert not_holding(report) == concerned
    assert report.decision == "fails"
    assert {one.decision for one in report.statements} == {"holds", "fails"}


def test_a_circuit_with_a_path_moved_to_another_head_neither_solves_nor_is_faithful(planted):
    moved = WHOLE.with_head("L2H0", "idle").with_head("L2H1", TRUE.heads[Head(2, 0)])
    report = validate(planted, TASK, moved, n_examples=128)
    assert {"solves", "faithful"} <= not_holding(report)  # L2H1 writes nothing, wherever it looks


def test_a_circuit_that_is_silent_about_a_head_is_undecided(model, task, circuit):
    report = validate(model, task, circuit.without_heads([Head(0, 0)]), n_examples=256)
    assert report.decision == "undecided"
    assert not_holding(report) == {"solves", "carries"}


def test_the_same_seed_gives_the_same_report_and_another_seed_other_losses(model, task, circuit, right):
    again, other = (validate(model, task, circuit, n_examples=256, seed=seed) for seed in (0, 6))
    assert right == again
    assert right.scale.own != other.scale.own


def test_the_standard_error_is_the_spread_over_examples(model, task, circuit):
    experiment = Experiment(model, task, circuit, n_examples=8)
    examples = experiment.test.examples.take(slice(0, 8))
    losses = task.losses(model(examples.inputs), examples)[:, 0].double()
    assert experiment.scale.own.mean == pytest.approx(losses.mean().item(), rel=1e-5)
    assert experiment.scale.own.standard_error == pytest.approx(losses.std().item() / 8**0.5, rel=1e-3, abs=1e-9)


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


def test_the_table_of_paths_has_numbers(right):
    paths = right.paths_table()
    assert paths["row made uniform"].tolist() == [one.losses["uniform"].loss.mean for one in right.parts]
    assert paths["matters"].tolist() == ["indirectly", "directly"]


def test_each_check_can_be_called_by_itself(model, task, circuit, right):
    experiment = Experiment(model, task, circuit, n_examples=256)
    assert minimality(experiment) == right.parts
    assert faithfulness(experiment) == right.faithfulness


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_examples": 1}, "number of examples is 1; expected a whole number from 2"),
        ({"threshold": 0.0}, "above 0"),
        ({"threshold": 1.0}, "below 1"),
        ({"circuit": Circuit()}, "names no head"),
    ],
)
def test_what_cannot_be_validated_is_refused(model, task, circuit, arguments, message):
    assert_refused(message, validate, model, task, **{"circuit": circuit, **arguments})
