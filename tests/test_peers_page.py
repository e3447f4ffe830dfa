"""The page of the peers: its curves and sentences are worked out by hand, and it is drawn without a network."""

import json

import pytest

from benchmarks.peers import page
from benchmarks.peers.page import better, curve, write_page
from tests.browser import opened

ROW = {
    "true": ["a", "b"],
    "scores": {"a": 3.0, "c": 2.0, "b": 1.0, "d": 0.0},
    "faithfulness": [0.0, 0.5, 0.5, 1.0, 1.0],
}


def test_the_curves_of_a_model_are_as_by_hand():
    roc, precision, faithfulness = (curve(kind, ROW) for kind in ("roc", "precision", "faithfulness"))
    assert (roc[0], roc[50], roc[100]) == (0.5, 1.0, 1.0)  # one of two heads before the first wrong one, then both
    assert (precision[50], precision[51]) == pytest.approx((1.0, 2 / 3))  # b is third
    assert (faithfulness[0], faithfulness[25], faithfulness[50], faithfulness[100]) == (0.0, 0.5, 0.5, 1.0)


def figures(area, cpr):
    return {"area": area, "precision": 1.0, "CPR": cpr, "CMD": 0.0, "sequences": 10, "seconds": 0.1}


METHODS = ("discovery", "ACDC", "EAP", "EAP-IG")
LEVELS = {"easy": {name: figures(1.0, 0.5 + 0.1 * (name == "EAP")) for name in METHODS}}


def test_where_a_peer_is_better_is_said_first():
    cpr, costs, area, *others = better(LEVELS)
    assert cpr == "CPR, better than discovery by 0.01 or more: EAP 0.600 on easy (discovery 0.500)."
    assert costs == "Sequences for a model: discovery 10, ACDC 10, EAP 10, EAP-IG 10."
    assert area == "Area under the ROC curve, better than discovery by 0.01 or more: no peer on any level."
    assert all(sentence.endswith("no peer on any level.") for sentence in others)


@pytest.fixture
def results(tmp_path):
    rows = [{"level": "easy", "seed": 0, "method": name, **ROW} for name in METHODS]
    peers, truth = tmp_path / "peers.json", tmp_path / "truth.json"
    peers.write_text(json.dumps({"command": "python -m ...", "levels": LEVELS, "models": rows}))
    paths = {"easy": {"precision": 1.0, "recall": 1.0, "slots": 1.0, "sequences": 10}}
    truth.write_text(json.dumps({"command": "python -m ...", "levels": paths, "models": []}))
    return peers, truth


@pytest.mark.slow
def test_the_page_shows_every_curve_and_number_without_a_network(tmp_path, results):
    write_page(*results, tmp_path / "peers.html")
    with opened(tmp_path / "peers.html") as (shown, complaints):
        assert shown.locator("#better li").count() == 5
        assert shown.locator("#heads-table tr").count() == 1 + len(METHODS)
        for kind in ("roc", "precision", "faithfulness"):
            assert shown.locator(f"#{kind} .scatterlayer .trace").count() == len(METHODS)
        assert complaints == []


def test_a_file_without_results_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "peers.json").write_text("{}")
    arguments = ["page", str(tmp_path / "out.html"), "--peers", str(tmp_path / "peers.json")]
    monkeypatch.setattr("sys.argv", arguments)
    assert page.main() == 2
    assert "has no results of a benchmark" in capsys.readouterr().err
