import pytest

from circuits import BadInput, Circuit, Head, OneHot, Previous
from circuits.chains import ChainProblem
from circuits.compile import compile_circuit
from circuits.searching import search_circuit
from retrieval_interp import load


@pytest.mark.slow
def test_the_handmade_circuit_comes_out(model, problem):
    found = search_circuit(model, problem)
    assert found.found
    assert found.circuit == Circuit({Head(0, 0): Previous(), Head(1, 0): OneHot({"query": "pair1.second"})})
    assert found.explained == (
        0,
        1,
    )  # with the head above left free too: so L0H0 is found


def test_every_candidate_stands_in_the_log_with_its_loss_and_the_reason(model, problem):
    log = search_circuit(model, problem).to_json()["log"]
    uniform = next(entry for entry in log if entry["change"] == {"L1H0": "uniform"})
    assert uniform["taken"] is False
    assert uniform["reason"] == "alone the loss is above the threshold, which another mechanism leaves low"
    assert uniform["loss"]["mean"] > 0.5
    taken = [entry["change"] for entry in log if entry["taken"] and entry["order"] == "from below"]
    assert {"L0H0": "previous"} in taken
    assert {"L1H0": "query -> pair1.second"} in taken


@pytest.mark.slow
def test_the_same_seed_gives_the_same_discovery(model, problem):
    assert search_circuit(model, problem, seed=3).to_json() == search_circuit(model, problem, seed=3).to_json()


@pytest.mark.slow
@pytest.mark.parametrize("backups", [[(1, 1)], [(1, 1), (1, 2)], [(2, 0), (3, 0)]])
def test_of_heads_that_back_each_other_up_one_is_named_and_all_others_are_offered(backups):
    answering = {Head(1, 0), *(Head(*backup) for backup in backups)}  # alone each looks useless
    heads = {Head(0, 0): OneHot({"pair1.second": "pair1.first"})}
    heads |= {head: OneHot({"query": "pair1.second"}) for head in sorted(answering)}
    problem = ChainProblem(1)
    found = search_circuit(compile_circuit(Circuit(heads), problem), problem)
    assert len(found.circuit.paths) == 2
    named = {path.head for path in found.circuit.paths} - {Head(0, 0)}
    offered = {path.head for circuit, _ in found.alternatives for path in circuit.paths} - {Head(0, 0)}
    assert len(named) == 1
    assert named | offered == answering


@pytest.mark.slow
def test_a_circuit_that_chance_could_decide_on_few_examples_is_judged_on_more():
    model, task, _ = load("induction")
    found = search_circuit(model, task, threshold=0.08)  # near to 0.077, with a standard error of 0.001
    assert found.found
    assert found.judgement.loss.n_examples > 512


def test_a_model_that_does_not_solve_its_task_has_no_circuit_to_find(model, problem):
    with pytest.raises(BadInput, match=r"the model's own loss is .* not surely below the threshold 1e-12"):
        search_circuit(model, problem, threshold=1e-12)
