"""The peers on a model of two layers of two heads, whose circuit is known; L0H1 and L1H1 do nothing."""

import subprocess
import sys

import pytest
import torch

from benchmarks.ground_truth.truth import GroundTruth
from benchmarks.peers.__main__ import METHODS, held_against
from benchmarks.peers.acdc import acdc, survival
from benchmarks.peers.against_auto_circuit import place
from benchmarks.peers.attribution import eap, eap_ig
from benchmarks.peers.faithfulness import cmd, cpr, faithfulness
from benchmarks.peers.head_scores import by_attention, by_edges
from benchmarks.peers.metric import measured
from circuits import Circuit, Head
from circuits.ground_truth.compile import Distractor, compile_circuit
from circuits.ground_truth.soften import soften
from retrieval_interp.ground_truth.chains import ChainProblem

JOINING, ASKING, LOOKING = Head(0, 0), Head(1, 0), Head(1, 1)
CIRCUIT = Circuit({JOINING: {"pair1.second": "pair1.first"}, ASKING: {"query": "pair1.second"}})


@pytest.fixture(scope="module")
def truth():
    problem = ChainProblem(1)
    looking = {LOOKING: Distractor({"query": "pair1.second"})}
    model = compile_circuit(CIRCUIT, problem, n_heads=2, distractors=looking)
    soften(model, [JOINING, ASKING], 0.8, n_instances=3)  # without gradients there would be nothing to follow
    return GroundTruth(model, problem, CIRCUIT, tuple(frozenset([path]) for path in CIRCUIT.paths))


@pytest.fixture
def on(truth):
    return measured(truth, n_examples=16, seed=0)


def test_a_layers_mlp_reads_its_heads_and_no_head_reads_another_one_of_its_layer(on):
    # Receivers and senders: L0H0, L0H1, MLP 0, L1H0, L1H1, MLP 1, out; the embedding, then the same without out.
    assert on.graph.possible.sum(dim=1).tolist() == [1, 1, 3, 4, 4, 6, 7]


def test_without_patches_it_is_the_model_and_with_all_patched_it_is_the_model_on_the_counterfactuals(on):
    graph = on.graph
    with torch.no_grad():
        assert torch.equal(graph.run(torch.zeros(7, 7))[0], graph.model(graph.inputs))
        other = graph.model(graph.inputs.roll(1, dims=0))
        assert graph.run(graph.possible)[0] == pytest.approx(other, abs=1e-5)
        only_the_output = torch.zeros(7, 7)
        only_the_output[6] = 1
        assert graph.run(only_the_output)[0] == pytest.approx(other, abs=1e-5)
    assert not graph.model.cfg.use_attn_in


def test_the_metric_is_1_for_the_model_and_0_for_its_counterfactuals(on):
    with torch.no_grad():
        assert on.metric(on.graph.run(torch.zeros(7, 7))[0]).item() == pytest.approx(1)
        assert on.metric(on.graph.run(on.graph.possible)[0]).item() == pytest.approx(0, abs=1e-4)


def test_the_score_of_an_edge_is_how_fast_the_metric_falls_as_it_is_patched(on):
    scores = eap(on)
    graph, edge = on.graph, (3, 1)  # from L0H0 to L1H0
    step = torch.zeros(7, 7)
    step[edge] = 1e-3
    with torch.no_grad():
        clean = graph.run(torch.zeros(7, 7))[1]
        ends = [on.metric(graph.run(sign * step, added=graph.corrupted - clean)[0]).item() for sign in (1, -1)]
    assert scores[edge] == pytest.approx(abs(ends[0] - ends[1]) / 2e-3, rel=0.05)
    assert scores[edge] > 0.01
    assert eap_ig(on, 1).equal(scores)
    assert not eap_ig(on, 3).equal(scores)


def test_acdc_keeps_what_the_induction_circuit_needs_and_counts_every_edge_that_it_tries(on):
    before = on.graph.n_forward
    kept = acdc(on, 0.05)
    needed = {(3, 1): "joining head to asking head", (6, 4): "asking head to output"}
    assert all(kept[edge] == 1 for edge in needed)
    idle = kept[1].sum() + kept[4].sum() + kept[:, 2].sum() + kept[:, 5].sum()
    assert idle == 0  # to and from the heads that do nothing
    assert on.graph.n_forward - before <= 1 + on.graph.possible.sum()
    assert acdc(on, 2.0).sum() == 0
    assert torch.equal(survival(on, (0.05, 2.0)), 0.05 * kept)


@pytest.mark.parametrize("method", [eap, eap_ig, lambda on: survival(on, (0.05,))])
def test_every_peer_puts_the_two_heads_before_the_two_that_do_nothing(on, method):
    scores = by_edges(method(on), on.graph)
    assert min(scores[JOINING], scores[ASKING]) > max(scores[Head(0, 1)], scores[LOOKING])


def test_attention_does_not_tell_a_head_that_only_looks(truth):
    scores = by_attention(truth, 16, seed=0)
    assert scores[Head(0, 1)] == pytest.approx(0, abs=1e-6)
    assert scores[LOOKING] == pytest.approx(1 / 3, abs=0.01)
    assert scores[JOINING] > 0.9


def test_the_figures_of_a_method_that_knows_the_truth_are_1(truth):
    known = {head: float(head in truth.true_heads) for head in truth.all_heads}
    figures = held_against(truth, 0, lambda truth, seed: (known, 5))
    assert (figures["area"], figures["precision"], figures["sequences"]) == (1.0, 1.0, 5)
    assert figures["faithfulness"] == pytest.approx([0, figures["faithfulness"][1], 1, 1, 1], abs=0.02)
    assert set(METHODS) == {"discovery", "ACDC", "ACDC once", "EAP", "EAP-IG", "attention", "chance"}


def test_the_curve_of_faithfulness_is_1_as_soon_as_both_needed_heads_are_the_models_own(truth, on):
    heads = truth.all_heads
    at_last = faithfulness(on, {head: place for place, head in enumerate(heads)})  # L0H0, the joining head, is last
    assert at_last[0] == pytest.approx(0, abs=0.05)
    assert at_last[3] < 0.5
    assert at_last[4] == pytest.approx(1)


def test_cpr_and_cmd_are_areas_worked_out_by_hand():
    curve = [0.0, 0.5, 1.5]  # trapezoids of 0.25 and 1.0, each half as wide as all; to 1: 0.75 and 0.5
    assert cpr(curve) == pytest.approx(0.625)
    assert cmd(curve) == pytest.approx(0.625)
    assert (cpr([1, 1, 1]), cmd([1, 1, 1])) == (1, 0)


def test_the_nodes_of_auto_circuit_have_the_places_of_ours(on):
    received = [place(node, on.graph, sends=False) for node in ("A0.0", "A0.1", "MLP 0", "A1.1", "MLP 1", "Resid End")]
    assert received == [0, 1, 2, 4, 5, 6]
    assert [place(node, on.graph, sends=True) for node in ("Resid Start", "A0.0", "MLP 0", "A1.1")] == [0, 1, 3, 5]


def test_an_environment_without_auto_circuit_is_refused_in_one_line():
    command = [sys.executable, "-m", "benchmarks.peers.against_auto_circuit", "--seeds", "1", "--python"]
    for python, said in ((sys.executable, "auto_circuit"), ("/nowhere", "/nowhere")):
        ran = subprocess.run([*command, python], capture_output=True, text=True)
        assert (ran.returncode, said in ran.stderr.splitlines()[-1]) == (2, True), ran.stderr
