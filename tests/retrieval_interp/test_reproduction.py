"""``retrieval-interp reproduce``: a report is reproduced if every number in it is measured again, and only then."""

import json

import pytest

from retrieval_interp.models.library import data_folder
from retrieval_interp.reproduction import Difference, differences, read_report
from tests.command import exit_code, refusal


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    assert exit_code("validate", "one_layer", "--examples", 256, "--out", folder) == 0
    return (folder / "report.json").read_text()


@pytest.fixture
def report(text):
    return json.loads(text)


def written(report, folder):
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return path


@pytest.mark.slow
def test_a_report_that_was_just_made_is_reproduced_and_other_versions_are_named(report, tmp_path, capsys):
    report["metadata"]["torch"] = "1.0"
    written(report, tmp_path)
    assert exit_code("reproduce", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "torch was '1.0', is" in printed
    assert "is reproduced: every number agrees" in printed


def test_the_order_of_keys_is_no_difference_and_a_missing_key_is_one():
    assert [*differences({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0})] == []
    assert [one.key for one in differences({"a": {"b": 2.0}}, {"a": {}})] == ["a"]


@pytest.mark.slow
def test_a_changed_number_and_a_changed_decision_are_named(report, tmp_path, capsys):
    report["parts"][0]["losses"]["uniform"]["loss"]["mean"] += 0.01
    report["statements"][1]["verdicts"][0]["decision"] = "undecided"
    assert exit_code("reproduce", written(report, tmp_path), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["holds"]
    keys = [one["key"] for one in document["differences"]]
    assert keys == ["statements[1].verdicts[0].decision", "parts[0].losses.uniform.loss.mean"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda report: report["metadata"].update(weights_sha256="0" * 64), "its weights differ from the weights of"),
        (lambda report: report["metadata"].update(model="nobody"), "nobody: no such model directory"),
        (lambda report: report["metadata"].update(model="hf:a/b"), "name it with --model hf:a/b"),
        (lambda report: report["metadata"].update(model="some/one", task="ioi"), "name it with --model some/one"),
        (lambda report: report["metadata"].update(task=["ioi"]), "its task is ['ioi']; expected a name"),
        (lambda report: report.update(n_examples=1), "report.json: the number of examples is 1; expected"),
        (lambda report: report.update(seed="one"), "not a report of `validate` (seed:"),
        (lambda report: report["metadata"].pop("model"), "its model is missing or invalid"),
        (lambda report: report["circuit"].update(yaml="heads: {L0H0: previous}"), "is the hash of another circuit"),
        (lambda report: report["circuit"].update(yaml="heads: [}"), "circuit.yaml, line 1: not YAML"),
        (lambda report: report.update(schema_version=5), "a report of schema 5; expected 8: validate again"),
        (lambda report: report.pop("parts"), "not a report of `validate` (parts:"),
        (lambda report: report["metadata"].update(model="a\x1b[31m"), r"a\x1b[31m: no such model"),
    ],
)
def test_what_cannot_be_measured_again_is_one_line(report, change, message, tmp_path, capsys):
    change(report)
    assert message in refusal(capsys, "reproduce", written(report, tmp_path))


def test_a_report_in_which_a_key_stands_twice_is_refused(text, tmp_path, capsys):
    (tmp_path / "report.json").write_text(text.replace('"protocol"', '"protocol": "paper", "protocol"', 1))
    assert "a key is given twice" in refusal(capsys, "reproduce", tmp_path)


def test_the_reports_beside_the_models_can_be_reproduced():
    for path in sorted(data_folder().glob("*/report.json")):
        assert read_report(path).metadata["model"] == path.parent.name


@pytest.mark.parametrize(
    ("reported", "measured", "same"),
    [
        (0.05, 0.05005, True),
        (0.05, 0.0502, False),
        (2.0, 2.0019, True),
        (2.0, 2.003, False),
        (float("nan"), float("nan"), True),
        (1, 2, False),
        (True, 1, False),
        (None, 0.0, False),
        ("directly", "indirect", False),
        ([1], [1, 1], False),
        ({"a": 1}, {}, False),
        ({"sentence": "so"}, {"sentence": "or so"}, True),
    ],
)
def test_numbers_may_differ_a_little_and_nothing_else_may(reported, measured, same):
    assert ([*differences({"key": reported}, {"key": measured})] == []) is same


def test_a_difference_names_its_place():
    reported = {"paths": [{"losses": {"uniform": 1.0}}, {"losses": {"uniform": 2.0}}]}
    measured = {"paths": [{"losses": {"uniform": 1.0}}, {"losses": {"uniform": 3.0}}]}
    assert [*differences(reported, measured)] == [Difference("paths[1].losses.uniform", 2.0, 3.0)]
