import json
from types import SimpleNamespace

import pytest

from circuits import Circuit, Head
from circuits.mechanisms.mechanism import Idle, Intact
from retrieval_interp import read_heads, write_scores
from tests.refusals import assert_refused

NODES = {"input": (True, 9.0), "a0.h0": (True, 0.1), "a0.h1": (False, -0.5), "a1.h10": (False, 0.2), "m0": (True, 1.0)}
EDGES = {"input->a0.h0<q>": (False, 0.3), "a0.h0->a1.h10<v>": (True, -0.1), "a0.h1->m0": (False, 0.2)}


def written(tmp_path, nodes, edges):
    said = ({name: {"in_graph": a, "score": b} for name, (a, b) in graph.items()} for graph in (nodes, edges))
    graph = {"cfg": {"n_layers": 2, "n_heads": 11}, "nodes": next(said), "edges": next(said)}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    return tmp_path / "graph.json"


@pytest.mark.parametrize(
    ("edges", "n", "heads"),
    [({}, None, ["L0H0"]), ({}, 2, ["L0H1", "L1H10"]), (EDGES, None, ["L0H0", "L1H10"]), (EDGES, 2, ["L0H0", "L0H1"])],
)
def test_the_heads_of_a_graph_are_intact_and_all_others_idle(tmp_path, edges, n, heads):
    others = {f"L{layer}H{index}": Idle() for layer in range(2) for index in range(11)}
    assert read_heads(written(tmp_path, NODES, edges), n) == Circuit(others | dict.fromkeys(heads, Intact()))


def test_scores_that_are_written_are_read_again(tmp_path):
    cfg = SimpleNamespace(n_layers=2, n_heads=2, d_model=8)
    scores = {Head(0, 0): 0.5, Head(0, 1): -2.0, Head(1, 0): 0.0, Head(1, 1): 1.0}
    write_scores(tmp_path / "scores.json", {str(head): score for head, score in scores.items()}, cfg)
    nodes = json.loads((tmp_path / "scores.json").read_text())["nodes"]
    expected = {"input": 2.0, "m0": 2.0, "m1": 2.0, "a0.h0": 0.5, "a0.h1": -2.0, "a1.h0": 0.0, "a1.h1": 1.0}
    assert {name: one.get("score") for name, one in nodes.items()} == {**expected, "logits": None}
    assert read_heads(tmp_path / "scores.json", 2).looking == (Head(0, 1), Head(1, 1))
    assert_refused("L1H1 has none", write_scores, tmp_path / "new.json", {**dict.fromkeys([*scores][:3], 1.0)}, cfg)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"nodes": 3}', '{"nodes": {"a0.h0": 1}}', '{"nodes": {"m0": {}}}'])
def test_what_is_no_graph_is_refused(tmp_path, text):
    (tmp_path / "graph.json").write_text(text)
    assert_refused(r"graph\.json: .*expected the JSON of a graph", read_heads, tmp_path / "graph.json")
