import json
import subprocess
import sys

import pytest

from retrieval_interp.cli import main

FEW = ["--examples", "32"]


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    out, errors = capsys.readouterr()
    return ended.value.code, out, errors


def one_line(code, out, errors):
    """What bad input has to look like."""
    assert code == 2
    assert out == ""
    assert errors.startswith("retrieval-interp: ")
    assert errors.count("\n") == 1
    return errors


def test_validating_the_shipped_transformer_passes_and_writes_the_three_reports(capsys, tmp_path):
    code, out, _ = run(capsys, "validate", "transformer_a", *FEW, "--out", tmp_path / "new" / "report")
    assert code == 0
    assert "transformer_a holds" in out
    folder = tmp_path / "new" / "report"
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.md", "report.html"}
    assert json.loads((folder / "report.json").read_text())["passed"] is True
    assert (folder / "report.md").read_text().startswith("# transformer_a: holds")


def test_json_is_one_document_on_standard_output_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "retrieval_interp", "validate", "transformer_a", *FEW, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["passed"] is True
    assert report["loss"]["full"] < 0.01
    assert report["loss"]["combined"] < 0.05
    assert len(report["heads"]) == 12
    assert report["about"]["model"] == "transformer_a"
    assert len(report["about"]["weights_sha256"]) == 64


def test_a_wrong_circuit_exits_with_one(capsys, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("heads:\n" + "".join(f"  L{layer}H0: uniform\n" for layer in range(12)))
    code, out, _ = run(capsys, "validate", "transformer_a", "--circuit", wrong, *FEW)
    assert code == 1
    assert "does not hold" in out


def test_a_stricter_threshold_turns_the_verdict(capsys):
    assert run(capsys, "validate", "transformer_a", *FEW, "--threshold", "0.0001")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nowhere"], "no such model directory"),
        (["validate", "nowhere", "--out", "new"], "no such model directory"),
        (["validate", "transformer_a", "--circuit", "nowhere.yaml", "--out", "new"], "nowhere.yaml: no such file"),
        (["validate", "transformer_a", "--threshold", "low"], "valid number"),
        (["validate", "transformer_a", "--threshold", "nan"], "threshold is nan"),
        (["validate", "transformer_a", "--threshold", "-1"], "threshold is -1"),
        (["validate", "transformer_a", "--examples", "0"], "0 examples"),
        (["validate", "transformer_a", "--seed", "-3"], "seed -3"),
        (["validate", "transformer_a", "--circuit", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["validate", "transformer_a", "--out", "/proc/nothing"], "cannot be written"),
        (["view", "nowhere"], "no such model directory"),
        (["view", "transformer_a", "--out", "/proc/nothing/a.html"], "cannot be written"),
        (["view", "transformer_a", "--examples", "0"], "--examples"),
        (["train"], "name a preset"),
        (["train", "Z"], "unknown preset 'Z'"),
        (["train", "tiny", "--resume"], "--resume takes preset"),
        (["train", "--resume", "--out", "nowhere"], "no such model directory"),
        (["train", "tiny", "--out", "/proc/nothing"], "cannot be written"),
        (["train", "tiny", "--seed", "-1"], "seed -1"),
        (["train", "tiny", "--device", "tpu"], "device 'tpu' is not usable here"),
        (["validate", "x" * 5000], "is no path"),
        (["validate", "transformer_a", "--circuit", "/dev/zero"], "is no file"),
        (["export", "nowhere", "elsewhere"], "no such model directory"),
        (["frobnicate"], "No such command"),
        (["validate"], "Missing argument"),
        (["validate", "transformer_a", "--frob"], "No such option"),
        ([], "Missing command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in one_line(*run(capsys, *arguments))
    assert list(tmp_path.iterdir()) == []


def test_a_circuit_for_another_model_names_file_and_line(capsys, tmp_path):
    foreign = tmp_path / "foreign.yaml"
    foreign.write_text("heads:\n  L0H0: uniform\n  L20H0:\n    query: pair1.first\n")
    message = one_line(*run(capsys, "validate", "transformer_a", "--circuit", foreign))
    assert f"{foreign}, line 3: L20H0 does not exist: the model has layers 0 to 11" in message


def test_a_model_without_a_circuit_asks_for_one(capsys, tmp_path):
    run(capsys, "train", "tiny", "--steps", "1", "--no-compile", "--out", tmp_path / "run")
    assert "name one with --circuit" in one_line(*run(capsys, "validate", tmp_path / "run"))


def test_export_makes_a_small_model_directory_of_a_run(capsys, tmp_path):
    run(capsys, "train", "tiny", "--steps", "3", "--no-compile", "--out", tmp_path / "run")
    code, out, _ = run(capsys, "export", tmp_path / "run", tmp_path / "small", "--json")
    assert code == 0
    assert json.loads(out)["precision"] == "float16"
    assert {path.name for path in (tmp_path / "small").iterdir()} == {"config.json", "log.jsonl", "model.safetensors"}
    small, whole = (tmp_path / name / "model.safetensors" for name in ("small", "run"))
    assert small.stat().st_size < 0.55 * whole.stat().st_size
    made = json.loads((tmp_path / "small" / "config.json").read_text())["made"]
    assert made["command"] == "retrieval-interp train tiny --seed 0 --steps 3 --out runs/tiny"
    assert "already holds a model" in one_line(*run(capsys, "export", tmp_path / "run", tmp_path / "small"))


def test_the_presets_are_listed_and_as_json(capsys):
    code, out, _ = run(capsys, "presets", "--json")
    assert code == 0
    assert json.loads(out)["transformer_d"]["architecture"]["n_layers"] == 24
    assert "figure4_nonic_8" in run(capsys, "presets")[1]
