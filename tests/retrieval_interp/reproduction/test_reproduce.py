"""``retrieval-interp reproduce``: a report holds when every number in it is found again, and only then."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput
from circuits.circuit_file import load_circuit
from retrieval_interp.models.library import data_folder
from retrieval_interp.reproduction.reproduce import Difference, Settings, circuit_of, differences
from tests.command import exit_code

CIRCUIT = data_folder() / "induction" / "circuit.yaml"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The text of a report that was just made."""
    folder = tmp_path_factory.mktemp("report")
    assert exit_code("validate", "induction", "--threshold", 0.1, "--examples", 64, "--out", folder) == 0
    return (folder / "report.json").read_text()


@pytest.fixture
def report(made):
    return json.loads(made)


def written(report, folder):
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return path


@pytest.mark.slow
def test_a_report_says_of_what_it_was_made(report):
    assert report["metadata"]["precision"] == "float32"
    assert len(report["metadata"]["weights_sha256"]) == len(report["circuit"]["sha256"]) == 64
    assert report["circuit"]["sha256"] == load_circuit(CIRCUIT).digest


@pytest.mark.slow
def test_a_report_that_was_just_made_holds(report, tmp_path, capsys):
    report["metadata"]["torch"] = "1.0"
    written(report, tmp_path)
    assert exit_code("reproduce", tmp_path) == 0
    said = capsys.readouterr().out
    assert "torch was '1.0', is" in said
    assert "report.json is reproduced" in said


@pytest.mark.slow
def test_what_a_report_says_otherwise_is_named(report, tmp_path, capsys):
    report["paths"][1]["losses"]["uniform"] += 0.01
    report["verdicts"][4]["outcome"] = "undetermined"
    assert exit_code("reproduce", written(report, tmp_path), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["holds"]
    assert [one["key"] for one in document["differences"]] == ["verdicts[4].outcome", "paths[1].losses.uniform"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda report: report["metadata"].update(weights_sha256="0" * 64),
            "induction: its weights differ from the weights of",
        ),
        (lambda report: report["metadata"].update(model="nobody"), "nobody: no such model directory"),
        (
            lambda report: report["metadata"].update(model="hf:a/b"),
            "its model is not on this machine; name it with --model hf:a/b",
        ),
        (
            lambda report: report["metadata"].update(model="someone/else", task="ioi"),
            "its model is not on this machine; name it with --model someone/else",
        ),
        (lambda report: report["metadata"].update(task=["ioi"]), "its task or metric is ['ioi']; expected a name"),
        (lambda report: report.update(examples=1), "report.json: 1 examples; expected at least 2"),
        (lambda report: report.update(examples=10**30), f"report.json: {10**30} examples; expected"),
        (lambda report: report.update(seed="1"), "its seed is missing or invalid"),
        (lambda report: report["metadata"].pop("model"), "its model is missing or invalid"),
        (lambda report: report.update(metadata=None), "its model is missing or invalid"),
        (
            lambda report: report["circuit"].update(yaml="heads: {L0H0: previous}"),
            "circuit.sha256 is the hash of another circuit",
        ),
        (lambda report: report["circuit"].update(yaml="heads: [}"), "circuit.yaml, line 1: not YAML"),
        (lambda report: report["circuit"].pop("yaml"), "is of an older version without a circuit"),
        (lambda report: report.pop("paths"), "not a report of `validate --json`"),
        (lambda report: report.update(threshold=10**400), "its threshold is too large"),
        (
            lambda report: report["metadata"].update(model="a\x1b[31m\udc00"),
            r"a\x1b[31m\udc00: no such model directory",
        ),
    ],
)
def test_what_cannot_be_measured_again_is_one_line(report, change, message, tmp_path, capsys):
    change(report)
    assert exit_code("reproduce", written(report, tmp_path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_report_in_which_a_key_stands_twice_is_refused(made, tmp_path, capsys):
    (tmp_path / "report.json").write_text(made.replace('"passed"', '"passed": false, "passed"', 1))
    assert exit_code("reproduce", tmp_path) == 2
    assert "a key is given twice" in capsys.readouterr().err


def test_a_report_of_an_older_version_is_of_the_circuit_beside_it(report, tmp_path):
    del report["circuit"]["yaml"]
    path = written(report, tmp_path)
    (tmp_path / "circuit.yaml").write_text(CIRCUIT.read_text())
    assert circuit_of(report, path) == load_circuit(CIRCUIT)
    (tmp_path / "circuit.yaml").write_text("heads: {L0H0: previous}")
    with pytest.raises(BadInput, match="belongs to another circuit"):
        circuit_of(report, path)


def test_the_reports_beside_the_models_say_enough_to_be_verified():
    for path in sorted(data_folder().glob("*/report.json")):
        report = json.loads(path.read_text())
        assert circuit_of(report, path).paths
        assert Settings.of(report, path).model == path.parent.name


@pytest.mark.parametrize(
    ("reported", "found", "same"),
    [
        (0.05, 0.05005, True),
        (0.05, 0.0502, False),
        (2.0, 2.0019, True),
        (2.0, 2.003, False),
        (1, 1.0, True),
        (1, 2, False),
        (True, 1, False),
        (True, 1.0, False),
        (None, 0.0, False),
        ("directly", "indirect", False),
        ([1], [1, 1], False),
        ({"a": 1}, {}, False),
        (10**400, 0.1, False),
        ({"p": 0.01}, {"p": 0.02}, True),
        ({"p": 0.001}, {"p": 0.111}, False),
        ({"beaten": 199}, {"beaten": 200}, True),
        ({"beaten": 8000}, {"beaten": 8}, False),
        ({"sentence": "so"}, {"sentence": "or so"}, True),
    ],
)
def test_numbers_may_differ_a_little_and_nothing_else_may(reported, found, same):
    assert ([*differences({"key": reported}, {"key": found})] == []) is same


def test_a_difference_names_its_place():
    reported = {"paths": [{"losses": {"uniform": 1.0}}, {"losses": {"uniform": 2.0}}]}
    found = {"paths": [{"losses": {"uniform": 1.0}}, {"losses": {"uniform": 3.0}}]}
    assert [*differences(reported, found)] == [Difference("paths[1].losses.uniform", 2.0, 3.0)]


@given(JSON)
def test_nothing_differs_from_itself(document):
    assert [*differences(document, document)] == []
