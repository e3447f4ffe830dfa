"""Circuits whose heads would not find their place by themselves, in models whose circuit is known."""

from circuits import Circuit, Head, OneHot
from circuits.averages import averages
from circuits.checks.self_consistency import self_consistency
from circuits.discovery.fitting import Fitting
from circuits.discovery.observed_paths import ObservedPaths
from circuits.discovery.steering import steer
from circuits.ground_truth import compile_circuit
from circuits.losses.sequential_test import SequentialTest
from tests.handmade import ChainTask

LOW, HIGH = Head(0, 0), Head(1, 0)
JOIN, ANSWER = OneHot({"pair1.second": "pair1.first"}), OneHot({"query": "pair1.second"})


def steered(circuit):
    task = ChainTask(1)
    model = compile_circuit(Circuit({LOW: JOIN, HIGH: ANSWER}), task)
    examples = task.examples(128, 0)
    observed = ObservedPaths(model, task.examples(64, 1), averages(model, task).patterns)
    fitting = Fitting(SequentialTest(model, task, examples, 0.01, searching=True), observed)
    found = steer(fitting, SequentialTest(model, task, examples, 0.05, searching=True), circuit)
    return found, fitting.trials, self_consistency(model, task, found, n_examples=128).verdict.decision


def test_a_lower_head_gets_back_what_a_head_above_looks_for():
    """All heads replaced, the join is not missed; the answering head by itself does miss it."""
    found, trials, decision = steered(Circuit({LOW: "identity", HIGH: ANSWER}))
    assert decision == "holds"
    assert found.heads[HIGH] == ANSWER
    assert [(trial.step, trial.head) for trial in trials if trial.taken] == [("steer", LOW)]
    assert trials[-1].taken  # the first that does is kept


def test_a_circuit_that_is_self_consistent_stays_as_it_is():
    circuit = Circuit({LOW: JOIN, HIGH: ANSWER})
    assert steered(circuit) == (circuit, [], "holds")


def test_a_circuit_that_no_mechanism_makes_self_consistent_stays_as_it_is():
    wrong = Circuit({LOW: JOIN, HIGH: OneHot({"query": "pair1.first"})})
    found, trials, decision = steered(wrong)
    assert (found, decision) == (wrong, "fails")
    assert not any(trial.taken for trial in trials)
