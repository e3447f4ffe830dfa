import json
from types import SimpleNamespace

import pytest

from circuits import Circuit, Head
from circuits.mechanisms.mechanism import Idle, Intact
from retrieval_interp import read_heads, write_scores
from tests.refusals import assert_refused

NODES = {"input": (True, 9.0), "a0.h0": (True, 0.1), "a0.h1": (False, -0.5), "a1.h10": (False, 0.2), "m0": (True, 1.0)}
MARK = ("in_graph", "score")
MARKS = {name: (marked,) for name, (marked, _) in NODES.items()}  # of a graph whose edges have scores
OLD = {name: marked for name, (marked, _) in NODES.items()}
NULLS = {name: (marked, None) for name, (marked, _) in NODES.items()}
EDGES = {"input->a0.h0<q>": (False, 0.3), "a0.h0->a1.h10<v>": (True, -0.1), "a0.h1->m0": (False, 0.2)}


def written(tmp_path, nodes, edges):
    def said(of):
        return {name: dict(zip(MARK, one, strict=False)) if isinstance(one, tuple) else one for name, one in of.items()}

    graph = {"cfg": {"n_layers": 2, "n_heads": 11}, "nodes": said(nodes), "edges": said(edges)}
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    return tmp_path / "graph.json"


@pytest.mark.parametrize(
    ("nodes", "edges", "n", "heads"),
    [(NODES, {}, None, ["L0H0"]), (NODES, EDGES, 2, ["L0H1", "L1H10"]), (OLD, {}, None, ["L0H0"])]
    + [(marks, EDGES, None, ["L0H0", "L1H10"]) for marks in (MARKS, OLD, NULLS)],
)
def test_the_heads_of_a_graph_are_intact_and_all_others_idle(tmp_path, nodes, edges, n, heads):
    others = {f"L{layer}H{index}": Idle() for layer in range(2) for index in range(11)}
    assert read_heads(written(tmp_path, nodes, edges), n) == Circuit(others | dict.fromkeys(heads, Intact()))


@pytest.mark.parametrize(
    ("nodes", "n", "said"),
    [
        ({"a2.h0": (True, 1.0)}, None, "L2H0 is beyond the 2 layers"),
        ({"a0.h0": (True, 1.0), "a0.h1": (True, -1.0)}, 1, "the same score"),
        ({"a0.h0": (False, 1.0)}, None, "no heads are in the graph"),
        ({f"a{n // 11}.h{n % 11}": (True, n) for n in range(22)}, None, "all heads are in the graph"),
        ({"a0.h0": ("false", 1.0)}, None, "expected the JSON"),
    ],
)
def test_a_graph_that_would_be_judged_for_another_is_refused(tmp_path, nodes, n, said):
    assert_refused(said, read_heads, written(tmp_path, nodes, {}), n)


def test_scores_that_are_written_are_read_again(tmp_path):
    cfg = SimpleNamespace(n_layers=2, n_heads=2, d_model=8)
    scores = {Head(0, 0): 0.5, Head(0, 1): -2.0, Head(1, 0): 0.0, Head(1, 1): 1.0}
    write_scores(tmp_path / "scores.json", {str(head): score for head, score in scores.items()}, cfg)
    nodes = json.loads((tmp_path / "scores.json").read_text())["nodes"]
    expected = {"a0.h0": 0.5, "a0.h1": -2.0, "a1.h0": 0.0, "a1.h1": 1.0}  # EAP-IG keeps what has no score in each graph
    assert {name: one["score"] for name, one in nodes.items() if "score" in one} == expected
    assert read_heads(tmp_path / "scores.json", 2).looking == (Head(0, 1), Head(1, 1))
    for odd, said in (({Head(0, 0): 1.0}, "L0H1 has none"), (scores | {Head(2, 0): 1.0}, "L2H0 is not in the model")):
        assert_refused(said, write_scores, tmp_path / "new.json", odd, cfg)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"nodes": 3}', '{"nodes": {"a0.h0": 1}}', '{"nodes": {"m0": {}}}'])
def test_what_is_no_graph_is_refused(tmp_path, text):
    (tmp_path / "graph.json").write_text(text)
    assert_refused(r"graph\.json: .*expected the JSON of a graph", read_heads, tmp_path / "graph.json")
