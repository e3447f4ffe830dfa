import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest.mock import Mock

import pytest
from safetensors.torch import load_file, save_file
from typer.main import get_command

import circuits
from circuits import discover, load_circuit
from circuits.settings import deciding
from retrieval_interp import __main__
from retrieval_interp.cli import app
from retrieval_interp.models import library
from tests.command import refusal, run

FEW, HUGE, NOWHERE = ["--examples", "32"], str(10**30), f"{__file__}/nothing"


@pytest.mark.slow
def test_json_is_one_document_on_standard_output_and_nothing_else(capfd):
    code, out, errors = run(capfd, "validate", "one_layer", "--seed", "1", "--examples", "256", "--json")
    assert code == 0, errors
    report = json.loads(out)
    assert report["decision"] == "holds"
    assert report["metadata"]["model"] == "one_layer"


def test_a_wrong_circuit_exits_with_one(capsys, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("heads:\n  L0H0: uniform\n  L1H0: uniform\n")
    code, out, _ = run(capsys, "validate", "induction", "--circuit", wrong, *FEW)
    assert code == 1
    assert "fails" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "nowhere"], "no such model directory"),
        (["validate", library.data_folder() / "paper"], "is no model; expected one of those in it: "),
        (["validate", "transformer_a", "--circuit", "nowhere.yaml", "--out", "new"], "nowhere.yaml: no such file"),
        (["validate", "transformer_a", "--threshold", "-1"], "threshold is -1"),
        (["discover", "transformer_a", "--threshold", "1.5"], "threshold is 1.5; expected a number below 1"),
        (["validate", "transformer_a", "--seed", "-3"], "seed is -3"),
        (["discover", "transformer_a", "--out", NOWHERE], "cannot be written"),
        (["validate", "transformer_a", "--out", NOWHERE], "cannot be written"),
        (["view", "one_layer", "--by", "template"], "unknown group 'template'; the groups are position, slot"),
        (["view", "transformer_a", "--out", NOWHERE], "cannot be written"),
        (["train"], "name a preset"),
        (["train", "tiny", "--resume"], "--resume takes preset"),
        (["train", "--resume", "--out", "nowhere"], "no such model directory"),
        (["train", "tiny", "--out", NOWHERE], "cannot be written"),
        (["train", "tiny", "--set", "colour=red"], "no field 'colour'; expected one of steps"),
        (["train", "transformer_a"], "transformer_a is a trained model, to load; the preset"),
        (["train", "tiny", "--set", "self=1"], "no field 'self'; expected one of steps"),
        (["train", "tiny", "--set", "seed=3"], "--seed for the seed"),
        (["train", "tiny", "--steps", "2", "--set", "steps=0"], "--set steps: expected NAME=VALUE, each name once"),
        (["train", "tiny", "--set", "warmup"], "expected NAME=VALUE"),
        (["train", "tiny", "--set", "warmup=-1"], "warmup is -1: Input should be greater than"),
        (["train", "tiny", "--set", "precision=half"], "precision is 'half': Input should be 'auto', 'float32'"),
        (["train", "tiny", "--set", f"precision={'[' * 10**5}"], "precision is '[[["),
        (["validate", "x" * 5000], "is no path"),
        (["validate", "transformer_a", "--circuit", "/dev/zero"], "is not a file"),
        (["validate", "induction", "--examples", HUGE], f"the number of examples is {HUGE}; expected"),
        (["discover", "induction", "--examples", HUGE], f"the number of examples is {HUGE}; expected"),
        (["llm", "prompts", "equations", "--n", HUGE], f"the number of questions is {HUGE}; expected a whole number"),
        (["validate", "induction", "--out", ""], "the argument after --out is empty"),
        (["frobnicate"], "No such command"),
        (["validate"], "Missing argument"),
        ([], "Missing command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_circuit_for_another_model_names_file_and_line(capsys, tmp_path):
    foreign = tmp_path / "foreign.yaml"
    foreign.write_text("heads:\n  L0H0: uniform\n  L20H0:\n    query: pair1.first\n")
    message = refusal(capsys, "validate", "transformer_a", "--circuit", foreign)
    assert f"{foreign}, line 3: L20H0 does not exist: the model has layers 0 to 11" in message


def test_a_folder_in_the_place_of_a_report_is_named_and_nothing_is_written(capsys, tmp_path):
    (tmp_path / "report.md").mkdir()
    assert "report.md: is a folder" in refusal(capsys, "validate", "induction", *FEW, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_output_that_cannot_be_written_is_one_line_and_a_reader_that_has_gone_is_no_verdict():
    command = [sys.executable, "-m", "retrieval_interp", "theory", "depth", "--json"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("retrieval-interp: standard output cannot be written")
    reader, writer = os.pipe()
    os.close(reader)  # as head does; 1 would be a verdict
    for given in (command, [*command, "--help"]):
        assert subprocess.run(given, stdout=writer, check=False).returncode == 141


def test_an_interrupted_command_says_so_and_also_before_anything_is_imported(capsys, monkeypatch, tmp_path):
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(circuits, "validate", interrupted)
    assert run(capsys, "validate", "transformer_a", "--out", tmp_path / "new") == (130, "", "interrupted\n")
    monkeypatch.setitem(sys.modules, "retrieval_interp.cli", type("Stopped", (), {"__getattr__": interrupted})())
    pipe = TextIOWrapper(BytesIO(), "cp1252")  # as on Windows
    for stdout in (pipe, None):  # the second is what a closed one is
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit, match=r"^130$"):
            __main__.main()
        assert capsys.readouterr().err == "interrupted\n"
    assert pipe.encoding == "utf-8"  # which has the marks of a report
    assert list(tmp_path.iterdir()) == []


def test_export_makes_a_small_model_directory_of_a_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("retrieval_interp.publishing.export.EXAMPLES", 64)
    whole, small = tmp_path / "run", tmp_path / "small"
    run(capsys, "train", "induction", "--steps", "3", "--no-compile", "--out", whole)
    export = ("models", "export", whole, small, "--json", "--checkpoint")
    assert "step-0000002.safetensors: no such checkpoint" in refusal(capsys, *export, 2)
    assert not small.exists()
    code, out, _ = run(capsys, *export, 3)
    assert (code, json.loads(out)["precision"]) == (0, "float16")
    files = {"config.json", "log.jsonl", "model.safetensors", "README.md", "checkpoints"}
    assert {path.name for path in small.iterdir()} == files
    assert (small / "model.safetensors").stat().st_size < 0.55 * (whole / "model.safetensors").stat().st_size
    (kept,) = (small / "checkpoints").iterdir()
    assert kept.name == "step-0000003.safetensors"
    assert kept.stat().st_size == (small / "model.safetensors").stat().st_size
    command = "retrieval-interp train induction --seed 0 --steps 3"
    assert json.loads((small / "config.json").read_text())["made"]["command"] == command
    assert command in (small / "README.md").read_text()
    assert "already holds a model" in refusal(capsys, *export, 3)
    assert "name one with --circuit" in refusal(capsys, "validate", small)


@pytest.mark.parametrize("width", ["60", "80"])
def test_the_presets_are_listed_with_one_line_for_a_family_and_all_as_json(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = run(capsys, "models", "presets")
    assert code == 0
    assert {"24000", "0.001", "12000"} <= {*out.split()}
    assert "…" not in out
    assert out.count("figure4_ic") <= 1
    listed = json.loads(run(capsys, "models", "presets", "--json")[1])
    assert listed["paper_d"]["architecture"]["n_layers"] == 24
    assert listed["figure4_nonic_8"]["architecture"]["n_layers"] == 8


def commands(group, *names):
    """All commands, by their full names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


def test_every_command_has_an_example_of_its_own_in_its_help():
    found = dict(commands(get_command(app)))
    assert len(found) > 12
    assert [name for name, one in found.items() if f"Example: retrieval-interp {name}" not in (one.epilog or "")] == []


def test_the_version_is_that_of_the_package(capsys):
    assert run(capsys, "--version")[:2] == (0, f"retrieval-interp {version('retrieval-interp')}\n")


def test_all_tables_are_printed_at_80_columns_with_no_number_cut(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "validate", "induction", *FEW, "--verbose", "--out", tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    for part in report["parts"]:
        for one in part["losses"].values():
            assert f"{one['loss']['mean']:.4f} ± {one['loss']['standard_error']:.4f}" in out
    assert "…" not in out


def somebody_elses_model(folder):
    """A model directory with nothing in it but what other code would write: task, architecture and weights."""
    folder.mkdir()
    shipped = library.find("induction")
    config = json.loads((shipped / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in ("format", "task", "architecture")}))
    weights = {name: tensor.float().contiguous() for name, tensor in load_file(shipped / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.slow
def test_the_circuit_of_a_transformer_that_somebody_else_trained_is_written_and_its_report_verified(capsys, tmp_path):
    theirs, out = somebody_elses_model(tmp_path / "theirs"), tmp_path / "report"
    code, document, _ = run(capsys, "discover", theirs, "--examples", "128", "--out", out, "--json")
    report, circuit = json.loads(document), load_circuit(out / "circuit.yaml")
    assert code == (report["decision"] != "holds")
    assert report["discovery"]["found"] is True
    assert report["circuit"]["sha256"] == circuit.digest
    assert "L1H0 query -> pair1.second" in map(str, circuit.paths)
    assert report["discovery"]["content_or_position"]["content"] == ["L1H0"]
    assert json.loads((out / "report.json").read_text()) == report
    report["combined"]["loss"]["mean"] += 0.01
    (out / "report.json").write_text(json.dumps(report))
    code, printed, _ = run(capsys, "reproduce", out)
    assert code == 1
    assert printed.splitlines()[0].startswith("combined.loss.mean: reported")
    assert "not reproduced: values that differ: 1" in printed


@pytest.mark.slow
def test_where_no_circuit_stays_below_the_threshold_discovery_says_so(capsys, tmp_path, monkeypatch):
    with deciding(attended=1.0, likely=1.0):  # attention shows no path
        code, out, _ = run(capsys, "discover", "induction", *FEW, "--out", tmp_path)
    assert code == 1
    assert "No circuit was found" in out
    assert not (tmp_path / "circuit.yaml").exists()


@pytest.mark.slow
def test_a_circuit_is_saved_with_its_report_while_it_is_undecided_whether_its_loss_is_low(
    capsys, tmp_path, monkeypatch
):
    def undecided(*given, **options):
        found = discover(*given, **options)
        return found.model_copy(update={"combined": replace(found.combined, decision="undecided")})

    monkeypatch.setattr("circuits.discover", undecided)
    code, out, _ = run(capsys, "discover", "induction", *FEW, "--out", tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert "Undecided whether the loss is low" in out
    assert "No circuit was found" not in out
    assert report["circuit"]["sha256"] == load_circuit(tmp_path / "circuit.yaml").digest
    assert code == (report["decision"] != "holds")


def test_discovery_of_a_model_that_does_not_solve_its_task_is_refused(capsys, tmp_path):
    theirs, out = somebody_elses_model(tmp_path / "theirs"), tmp_path / "report"
    weights = load_file(theirs / "model.safetensors")
    save_file({name: tensor * ("W_O" not in name) for name, tensor in weights.items()}, theirs / "model.safetensors")
    assert "with all heads idle" in refusal(capsys, "discover", theirs, "--out", out)
    assert not out.exists()


def test_the_shallowest_transformer_for_three_hops_has_three_heads_and_solves_the_task(capsys):
    code, out, _ = run(capsys, "theory", "construct", 3, "--json")
    made, stored = json.loads(out), json.loads((library.data_folder() / "construction.json").read_text())
    assert code == 0
    assert (made["hops"], made["heads"], made["loss"]["mean"]) == (3, 3, pytest.approx(0, abs=1e-6))
    assert all(made[key] == stored[key] for key in ("hops", "heads", "command"))
    code, out, _ = run(capsys, "theory", "construct", 1, "--examples", 16)
    assert code == 0
    assert out.splitlines()[:-1] == ["L0H0 pair1.second -> pair1.first", "L1H0 query -> pair1.second"]


def test_facts_are_answered_in_so_many_layers_and_as_json(capsys, tmp_path):
    functions = library.data_folder() / "facts" / "functions.yaml"
    code, out, _ = run(capsys, "theory", "facts", functions)
    assert code == 0
    assert out.startswith("'=3' takes 3 layers with the causal mask, 3 layers without a mask.\n")
    code, out, _ = run(capsys, "theory", "facts", library.data_folder() / "facts" / "relatives.yaml", "--json")
    assert (code, json.loads(out)["layers_causal"], json.loads(out)["layers_full"]) == (0, 4, 3)
    assert "Brazil" in json.loads(out)["known_after"][4]
    behind = tmp_path / "behind.yaml"
    behind.write_text("query: [a]\nasked: c\nfacts: {one: [a b -> c, d e -> f], two: [a -> b, d -> e]}\n")
    assert run(capsys, "theory", "facts", behind)[0] == 0
    round_and_round = tmp_path / "round.yaml"
    round_and_round.write_text("query: [a]\nasked: c\nfacts: {one: [b -> c, c -> b]}\n")
    assert "the facts form a cycle: b -> c -> b" in refusal(capsys, "theory", "facts", round_and_round)
