import csv
import json

import pytest

from circuits import BadInput, Circuit, Head, OneHot, Uniform
from circuits.flow.flow_check import flow_check
from retrieval_interp import load
from retrieval_interp.experiments.composition_page import write_composition
from retrieval_interp.experiments.composition_study import TABLES, _without_nan, composition_study
from retrieval_interp.models.library import data_folder
from tests.architectures import bridge
from tests.browser import opened
from tests.circuits.model.test_architectures import PROBLEM
from tests.command import run


@pytest.fixture(scope="module")
def induction():
    model, task, circuit = load("induction")
    return composition_study(model, task, circuit, n_examples=16, threshold=0.1), task, circuit


def test_every_measurement_is_made_and_said(induction):
    study, task, circuit = induction
    assert [*study.findings()] == [
        "Self-consistency",
        "Flow check",
        "Path patching",
        "Interchange interventions",
        "MLPs",
        "Probes",
    ]
    assert study.flow == flow_check(circuit, task)
    assert study.interchange.n_examples == 16
    assert study.probes.n_examples == 4 * 16
    assert [*study.tables()] == [*TABLES]
    assert study.sentences()[0].startswith("The circuit is not self-consistent")


def test_the_json_has_null_where_there_is_no_number(induction):
    study, *_ = induction
    text = json.dumps(study.to_json(), allow_nan=False)
    assert json.loads(text)["decision"] == "fails"
    assert _without_nan({"a": [float("nan"), 1.0, None]}) == {"a": [None, 1.0, None]}


def test_a_model_without_mlps_and_a_task_without_variables_have_fewer_parts(model, problem, circuit):
    study = composition_study(model, problem, circuit, n_examples=16)
    assert study.self_consistency.decision == "holds"
    assert (study.flow, study.interchange, study.mlps, study.probes) == (None, None, None, None)
    assert [*study.findings()] == ["Self-consistency", "Path patching"]
    assert [*study.tables()] == ["edges", "self_consistency"]
    assert study.to_json()["mlps"] is None


@pytest.mark.slow
def test_the_page_shows_only_what_was_measured(induction, model, problem, circuit, tmp_path):
    study = composition_study(model, problem, circuit, n_examples=16)
    roles = problem.examples(16, seed=0).roles
    with opened(write_composition(study, circuit, roles, 2, "<made>", tmp_path, "command")) as (page, complaints):
        assert page.locator(".plotly-graph-div").count() == 1
        assert page.locator("h1").inner_text().startswith("<made>")
        assert complaints == []


def test_a_circuit_without_a_path_between_roles_is_refused(model, problem):
    with pytest.raises(BadInput, match="no path between roles"):
        composition_study(model, problem, Circuit({Head(0, 0): Uniform()}))


@pytest.mark.slow
def test_the_command_writes_a_page_and_its_tables(tmp_path, capsys):
    arguments = ("study", "composition", "induction", "--examples", "32", "--threshold", "0.1", "--out", tmp_path)
    code, out, errors = run(capsys, *arguments, "--json")
    document = json.loads(out)
    assert (code, document["decision"]) == (1, "fails"), errors
    assert document["command"].endswith("composition induction --examples 32 --seed 0 --threshold 0.1")
    assert {path.name for path in tmp_path.iterdir()} == {"composition.html", *(f"{name}.csv" for name in TABLES)}
    command, *rows = (tmp_path / "edges.csv").read_text().splitlines()
    assert command == f"# {document['command']}"
    found = [row for row in csv.DictReader(rows) if row["decision"] == "found" and row["sender"] != "all senders"]
    assert len(found) == len(document["path_patching"]["edges"]) > 0
    with opened(tmp_path / "composition.html") as (page, complaints):
        titles = page.locator("h2").all_inner_texts()
        assert titles == [
            "What was found",
            "Which senders tell each head where to attend",
            "Self-consistency",
            "Interchange interventions",
            "MLPs",
            "Probes of all roles",
        ]
        shown = len(found) + len(document["path_patching"]["undecided"])
        assert page.locator("#edges-table tr").count() == 1 + shown
        assert page.locator("#interchange .heatmaplayer").count() == 1
        assert page.locator("#self-consistency-table tr").nth(1).inner_text().startswith("L0H0\tfails")
        assert complaints == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no such model directory"),
        (("bare",), "has no circuit.yaml"),
        (("induction", "--circuit", "uniform.yaml"), "no path between roles"),
        (("induction", "--examples", "1"), "at least 2"),
        (("induction", "--out", "/proc/nothing"), "/proc/nothing"),
    ],
)
def test_bad_input_is_said_in_one_line(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text((data_folder() / "induction" / "config.json").read_text())
    (tmp_path / "uniform.yaml").write_text("heads: {L0H0: uniform}\n")
    code, out, errors = run(capsys, "study", "composition", *arguments)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert said in errors


def test_what_cannot_be_patched_is_left_out_and_the_rest_is_measured():
    """Gemma 2 normalises what its heads write before it is added."""
    circuit = Circuit({Head(1, 2): OneHot({"b": "a"})} | {Head(0, index): "uniform" for index in range(4)})
    study = composition_study(bridge("gemma2"), PROBLEM, circuit, n_examples=8, threshold=9.0)
    assert study.edges is None
    assert "heads and MLPs add to it" in study.path_patching
    assert study.to_json()["path_patching"] is None
    assert study.mlps is not None
    assert "edges" not in study.tables()
