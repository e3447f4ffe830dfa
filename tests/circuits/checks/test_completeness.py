"""Knockouts of heads in a circuit and in its model, whose truth is compiled."""

import pytest

from circuits import Circuit, Head, OneHot, validate
from circuits.checks.completeness import complete, completeness
from circuits.checks.experiment import Experiment
from circuits.ground_truth import compile_circuit
from tests.handmade import ChainTask

TASK = ChainTask(1)
JOIN, ANSWER = OneHot({"pair1.second": "pair1.first"}), OneHot({"query": "pair1.second"})
JOINING, ASKING, BACKUP = Head(0, 0), Head(1, 0), Head(1, 1)


def measured(*answering):
    """The knockouts of one head that joins the pairs and one that answers, in a model where some heads can answer."""
    model = compile_circuit(Circuit({JOINING: JOIN, **dict.fromkeys(answering, ANSWER)}), TASK, n_heads=2)
    circuit = Circuit({JOINING: JOIN, ASKING: ANSWER, Head(0, 1): "idle", BACKUP: "idle"})
    experiment = Experiment(model, TASK, circuit, n_examples=128)
    knockouts = completeness(experiment)
    return model, circuit, knockouts, complete(experiment, knockouts)


def test_where_no_other_head_does_the_work_every_knockout_costs_circuit_and_model_the_same():
    *_, knockouts, said = measured(ASKING)
    assert {out.heads for out in knockouts} == {(JOINING,), (ASKING,), (JOINING, ASKING)}
    assert {out.decision for out in knockouts} == {"below"}
    assert all(out.of_circuit == out.of_model for out in knockouts)
    assert said.decision == "holds"


def test_a_backup_outside_the_circuit_is_found_by_the_knockout_of_the_head_that_it_stands_in_for():
    model, circuit, knockouts, said = measured(ASKING, BACKUP)
    apart = {out.heads: out.difference for out in knockouts if out.decision == "above"}
    # Lost, both give each of three chains a third of their attention: 2/3 of each token, of which the MLP leaves 1/3.
    assert apart == {(ASKING,): pytest.approx(1.0, abs=0.01), (JOINING,): pytest.approx(1 / 3, abs=0.03)}
    assert said.decision == "fails"
    assert "Heads outside the circuit do part of its work. They differ without L1H0" in said.sentence
    report = validate(model, TASK, circuit, n_examples=128)
    failed = [verdict.name for verdict in report.verdicts if verdict.decision != "holds"]
    assert failed == ["faithful (resample)", "complete"]  # of another example, the backup answers wrongly
    assert report.headline == "fails (faithful: fails; complete: fails)"


def test_what_has_no_idle_head_or_no_other_is_said():
    model = compile_circuit(Circuit({JOINING: JOIN, ASKING: ANSWER}), TASK)
    all_heads, none = (
        Experiment(model, TASK, Circuit(dict.fromkeys((JOINING, ASKING), kind)), n_examples=8)
        for kind in ("identity", "idle")
    )
    assert completeness(all_heads) == completeness(none) == ()
    assert complete(all_heads, ()).decision == "holds"
    assert complete(none, ()).decision == "fails"
