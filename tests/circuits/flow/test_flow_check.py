import pytest

from circuits import Circuit, Head, OneHot, validate
from circuits.circuit import AttentionPath
from circuits.flow.flow_check import flow_check
from circuits.ground_truth.compile import compile_circuit
from circuits.mechanisms import Condition, Identity, Previous
from circuits.validation.report_files import markdown
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from tests.repeated import RepeatedTokens

TWO = Circuit(
    {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "pair1.second"}),
        Head(2, 0): Identity(),
        Head(3, 0): OneHot({"query": "pair2.second"}),
    }
)


def test_every_symbol_arrives_with_the_layer_that_brings_it():
    found = flow_check(TWO, ChainTask(2))
    assert found.passed
    assert found.known_at == {"x1": 1, "x2": 3}
    (sentence,) = found.sentences(low=True)
    assert "x1 after layer 1, x2 after layer 3" in sentence


def test_heads_that_nobody_tells_where_to_look_are_against_the_first_assumption():
    found = flow_check(TWO.with_head(Head(0, 0), Identity()), RetrievalTask(2, step_order=StepOrder.FIRST_FIRST))
    assert found.known_at == {"x1": None, "x2": None}
    assert found.forbidden == (
        AttentionPath(Head(1, 0), "query", "pair1.second"),
        AttentionPath(Head(3, 0), "query", "pair2.second"),
    )
    low, high = found.sentences(low=True), found.sentences(low=False)
    assert low[-1].startswith("The loss is low all the same")
    assert high == low[:-1]


def test_a_path_that_brings_nothing_new_is_named():
    again = TWO.with_head(Head(2, 0), OneHot({"query": "pair1.first"}))
    found = flow_check(again, ChainTask(2))
    assert found.redundant == (AttentionPath(Head(2, 0), "query", "pair1.first"),)


def test_a_path_that_carries_on_some_slots_only_what_another_carries_on_others_is_not_redundant():
    task = RetrievalTask(1, step_order=StepOrder.FIRST_FIRST)
    ends = ("pair1.second", "pair1.first")
    slots = {
        head: OneHot([ends], where={ends: Condition("slot", ends[1], own)}) for head, own in enumerate([(0, 1), (2, 3)])
    }
    fetch = {Head(2, 0): OneHot({"query": "pair1.second"})}
    both = flow_check(Circuit({Head(layer, 0): own for layer, own in slots.items()} | fetch), task)
    assert both.passed
    assert both.redundant == both.forbidden == ()
    one = flow_check(Circuit({Head(0, 0): slots[0]} | fetch), task)
    assert not one.passed
    assert one.known_in == {"x1": 0.5}
    assert one.forbidden == ()  # allowed on two slots


def test_a_circuit_without_paths_carries_nothing():
    found = flow_check(Circuit({Head(0, 0): Identity()}), ChainTask(2))
    assert found.known_at == {"x1": None, "x2": None}
    assert found.known_in == {"x1": 0.0, "x2": 0.0}
    assert not found.passed


def test_a_task_that_does_not_say_what_its_roles_know_has_no_answer():
    assert flow_check(TWO, RepeatedTokens()) is None


@pytest.mark.slow
def test_the_report_says_what_flow_says_beside_the_loss():
    task = ChainTask(2)
    circuit = minimal_circuit(2)
    model = compile_circuit(circuit, task, n_heads=2)  # its second heads write nothing
    report = validate(model, task, circuit, n_examples=16)
    assert report.to_json()["flow_check"]["known_at"] == {"x1": 1, "x2": 2}
    assert "## Could it work?" in markdown(report)
    elsewhere = circuit.with_head(Head(2, 1), circuit.heads[Head(2, 0)]).with_head(Head(2, 0), Identity())
    report = validate(model, task, elsewhere, n_examples=16)
    assert report.flow_check.passed
    assert report.flow_sentences()[-1].startswith("The circuit passes the flow check, but its loss is not low")
