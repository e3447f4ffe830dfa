import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file, save_file

import circuits
from circuits import discover, load_circuit
from circuits.discovery.settings import DiscoverySettings
from retrieval_interp import __main__
from retrieval_interp.models import library
from retrieval_interp.models.provenance import metadata
from tests.command import run

FEW = ["--examples", "32"]


def one_line(code, out, errors):
    """What bad input has to look like."""
    assert code == 2
    assert out == ""
    assert errors.startswith("retrieval-interp: ")
    assert errors.count("\n") == 1
    return errors


@pytest.mark.slow
def test_json_is_one_document_on_standard_output_and_nothing_else(capfd):
    code, out, errors = run(capfd, "validate", "induction", "--threshold", "0.1", *FEW, "--json")
    assert code == 0, errors
    report = json.loads(out)
    assert report["passed"] is True
    assert report["metadata"]["model"] == "induction"


@pytest.mark.slow
def test_a_discovered_circuit_is_written_with_its_averages_and_its_report_is_verified(capsys, tmp_path):
    out, report = tmp_path / "found.yaml", tmp_path / "report"
    code, document, _ = run(
        capsys, "discover", "induction", *FEW, "--threshold", "0.1", "--out", out, "--report", report, "--json"
    )
    found = json.loads(document)
    assert code < 2
    assert found["discovery"]["found"] is True
    assert found["discovery"]["combined"]["mean"] < 0.1
    assert {path.name for path in tmp_path.iterdir()} == {"found.yaml", "found.patterns.safetensors", "report"}
    assert found["discovery"]["circuit"]["sha256"] == load_circuit(out).digest
    assert found["self_consistency"]["decision"] in ("holds", "fails", "undecided")
    assert '<ul id="self-consistency">' in (report / "report.html").read_text()
    assert found["self_consistency"]["sentences"][0] in (report / "report.md").read_text()
    assert run(capsys, "reproduce", report)[0] == 0
    found["self_consistency"]["combined"]["mean"] += 0.01
    (report / "report.json").write_text(json.dumps(found))
    code, said, _ = run(capsys, "reproduce", report)
    assert code == 1
    assert "self_consistency.combined.mean" in said


def test_a_wrong_circuit_exits_with_one(capsys, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("heads:\n  L0H0: uniform\n  L1H0: uniform\n")
    code, out, _ = run(capsys, "validate", "induction", "--circuit", wrong, *FEW)
    assert code == 1
    assert "fails" in out


@pytest.mark.slow
def test_a_stricter_threshold_turns_the_verdict(capsys):
    assert run(capsys, "validate", "induction", *FEW, "--threshold", "0.1")[0] == 0
    assert run(capsys, "validate", "induction", *FEW, "--threshold", "0.05")[0] == 1


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
        (["validate", "transformer_a", "--seed", "-3"], "seed is -3"),
        (["validate", "transformer_a", "--threshold", "-1", "--out", "new"], "threshold is -1"),
        (["discover", "nowhere"], "no such model directory"),
        (["discover", "transformer_a", "--threshold", "0"], "threshold is 0"),
        (["discover", "transformer_a", "--out", "/proc/nothing/circuit.yaml"], "cannot be written"),
        (["discover", "transformer_a", "--report", "/proc/nothing"], "cannot be written"),
        (["discover", "transformer_a", "--seed", "-3"], "seed is -3"),
        (["validate", "transformer_a", "--out", "/proc/nothing"], "cannot be written"),
        (["view", "nowhere"], "no such model directory"),
        (["view", "transformer_a", "--out", "/proc/nothing/a.html"], "cannot be written"),
        (["view", "transformer_a", "--examples", "0"], "--examples"),
        (["view", "one_layer", "--by", "template"], "unknown group 'template'; the groups are position, slot"),
        (["train"], "name a preset"),
        (["train", "Z"], "unknown preset 'Z'"),
        (["train", "tiny", "--resume"], "--resume takes preset"),
        (["train", "--resume", "--out", "nowhere"], "no such model directory"),
        (["train", "tiny", "--out", "/proc/nothing"], "cannot be written"),
        (["train", "tiny", "--seed", "-1"], "seed is -1"),
        (["train", "tiny", "--set", "colour=red"], "no field 'colour'; expected one of steps"),
        (["train", "tiny", "--set", "name=x"], "no field 'name'; expected one of steps"),
        (["train", "tiny", "--set", "folder=x"], "no field 'folder'; expected one of steps"),
        (["train", "tiny", "--set", "self=1"], "no field 'self'; expected one of steps"),
        (["train", "tiny", "--set", "seed=3"], "--set seed is not known; use --seed"),
        (["train", "tiny", "--steps", "2", "--set", "steps=0"], "--set steps is not known; use --steps"),
        (["train", "tiny", "--set", "lr=1", "--set", "lr=2"], "--set lr is given twice"),
        (["train", "tiny", "--set", "warmup"], "expected NAME=VALUE"),
        (["train", "tiny", "--set", "warmup=-1"], "warmup is -1; expected a whole number from 0"),
        (["train", "tiny", "--set", "precision=half"], "expected one of auto, float32, bfloat16"),
        (["train", "tiny", "--set", f"precision={'[' * 10**5}"], "precision is '[[["),
        (["train", "--resume", "--set", "warmup=1"], "--resume takes preset"),
        (["train", "tiny", "--device", "tpu"], "device 'tpu' is not known; expected one of auto"),
        (["validate", "x" * 5000], "is no path"),
        (["validate", "transformer_a", "--circuit", "/dev/zero"], "is not a file"),
        (["models", "export", "nowhere", "elsewhere"], "no such model directory"),
        (["validate", "induction", "--examples", str(10**30)], f"{10**30} examples; expected at least 2"),
        (["discover", "induction", "--examples", str(10**30)], f"{10**30} examples; expected at least 2"),
        (["study", "content-or-position", "induction", "--examples", str(10**6)], "--examples"),
        (["theory", "gradients", "induction", "--examples", str(10**6)], "--examples"),
        (
            ["llm", "prompts", "equations", "--n", str(10**30)],
            f"the number of questions is {10**30}; expected a whole number",
        ),
        (["validate", "induction", "--out", ""], "the argument after --out is empty"),
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


@pytest.mark.parametrize(
    ("arguments", "precision"),
    [
        (["study", "content-or-position", "induction", "--examples", "8"], "float32"),
        (["theory", "gradients", "induction", "--examples", "1"], "float64"),
    ],
)
def test_what_is_read_off_a_model_says_which_weights_it_has(capsys, arguments, precision):
    code, out, _ = run(capsys, *arguments, "--json")
    said, expected = json.loads(out), metadata(arguments[2], library.load(arguments[2]).model)
    assert code == 0
    assert {key: said[key] for key in expected} == {**expected, "precision": precision}


def test_ctrl_c_before_anything_is_there_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "retrieval_interp.cli", Interrupting("cli"))
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


class Interrupting(ModuleType):
    """A module during whose import somebody stops the command."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_a_circuit_for_another_model_names_file_and_line(capsys, tmp_path):
    foreign = tmp_path / "foreign.yaml"
    foreign.write_text("heads:\n  L0H0: uniform\n  L20H0:\n    query: pair1.first\n")
    message = one_line(*run(capsys, "validate", "transformer_a", "--circuit", foreign))
    assert f"{foreign}, line 3: L20H0 does not exist: the model has layers 0 to 11" in message


def test_a_folder_in_the_place_of_a_report_is_named_and_nothing_is_written(capsys, tmp_path):
    (tmp_path / "report.md").mkdir()
    message = one_line(*run(capsys, "validate", "induction", *FEW, "--out", tmp_path))
    assert "report.md: is a folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_output_that_cannot_be_written_is_one_line():
    command = [sys.executable, "-m", "retrieval_interp", "theory", "depth", "--json"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    one_line(ended.returncode, "", ended.stderr)
    assert "standard output cannot be written" in ended.stderr


def test_an_interrupted_command_says_so(capsys, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(circuits, "validate", interrupted)
    code, out, errors = run(capsys, "validate", "transformer_a", "--out", tmp_path / "new")
    assert (code, out, errors) == (130, "", "interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_circuit_asks_for_one(capsys, tmp_path):
    run(capsys, "train", "tiny", "--steps", "1", "--no-compile", "--out", tmp_path / "run")
    assert "name one with --circuit" in one_line(*run(capsys, "validate", tmp_path / "run"))


@pytest.mark.slow
def test_export_makes_a_small_model_directory_of_a_run(capsys, tmp_path):
    run(capsys, "train", "tiny", "--steps", "3", "--no-compile", "--out", tmp_path / "run")
    code, out, _ = run(capsys, "models", "export", tmp_path / "run", tmp_path / "small", "--json")
    assert code == 0
    assert json.loads(out)["precision"] == "float16"
    assert {path.name for path in (tmp_path / "small").iterdir()} == {"config.json", "log.jsonl", "model.safetensors"}
    small, whole = (tmp_path / name / "model.safetensors" for name in ("small", "run"))
    assert small.stat().st_size < 0.55 * whole.stat().st_size
    made = json.loads((tmp_path / "small" / "config.json").read_text())["made"]
    assert made["command"] == "retrieval-interp train tiny --seed 0 --steps 3"
    assert "already holds a model" in one_line(*run(capsys, "models", "export", tmp_path / "run", tmp_path / "small"))
    keeping = ("models", "export", tmp_path / "run", tmp_path / "kept", "--checkpoint")
    assert "step-0000002.safetensors: no such checkpoint" in one_line(*run(capsys, *keeping, 2))
    assert not (tmp_path / "kept").exists()
    assert run(capsys, *keeping, 3)[0] == 0
    (kept,) = (tmp_path / "kept" / "checkpoints").iterdir()
    assert kept.name == "step-0000003.safetensors"
    assert kept.stat().st_size == small.stat().st_size


def test_the_presets_are_listed_and_as_json(capsys):
    code, out, _ = run(capsys, "models", "presets", "--json")
    assert code == 0
    assert json.loads(out)["transformer_d"]["architecture"]["n_layers"] == 24
    assert "figure4_nonic_8" in run(capsys, "models", "presets")[1]


@pytest.mark.parametrize("width", [60, 80])
def test_no_number_of_the_list_of_presets_is_cut(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(capsys, "models", "presets")
    assert {"24000", "0.001", "12000"} <= {*out.split()}
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
def test_discovery_finds_the_circuit_of_a_transformer_that_somebody_else_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    theirs = somebody_elses_model(tmp_path / "theirs")
    code, out, _ = run(capsys, "discover", theirs, "--threshold", "0.1", *FEW, "--report", "report", "--json")
    assert code == 0
    document = json.loads(out)
    found = load_circuit(tmp_path / "circuit.yaml")
    assert "L1H0 query -> pair1.second" in map(str, found.paths)
    assert document["discovery"]["found"] is True
    assert document["content_or_position"]["content_intact"]["heads"] == ["L1H0"]
    assert {entry["head"] for entry in document["discovery"]["trials"]} == {"L0H0", "L1H0"}
    assert document["chance"]["random_circuits"]["n"] > 0
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == document
    assert run(capsys, "validate", theirs, "--circuit", "circuit.yaml", "--threshold", "0.1", *FEW)[0] == 0


@pytest.mark.slow
def test_where_no_circuit_stays_below_the_threshold_discovery_says_so(capsys, tmp_path, monkeypatch):
    blind = DiscoverySettings(on=2.0, likely=2.0)  # attention shows no path
    monkeypatch.setattr("circuits.discover", partial(discover, settings=blind))
    code, out, _ = run(capsys, "discover", "induction", *FEW, "--out", tmp_path / "circuit.yaml")
    assert code == 1
    assert "fails" in out


def test_discovery_of_a_model_that_does_not_solve_its_task_is_refused(capsys, tmp_path):
    message = one_line(*run(capsys, "discover", "induction", "--threshold", "0.001", "--out", tmp_path / "c.yaml"))
    assert "0.001" in message
    assert list(tmp_path.iterdir()) == []


def test_the_shallowest_transformer_for_three_hops_has_three_heads_and_solves_the_task(capsys):
    code, out, _ = run(capsys, "theory", "construct", 3, "--json")
    made, stored = json.loads(out), json.loads((library.data_folder() / "construction.json").read_text())
    assert code == 0
    assert (made["hops"], made["heads"], made["loss"]["mean"]) == (3, 3, pytest.approx(0, abs=1e-6))
    assert {key: made[key] for key in ("hops", "heads", "command")} == {
        key: stored[key] for key in ("hops", "heads", "command")
    }
    code, out, _ = run(capsys, "theory", "construct", 1, "--examples", 16)
    assert code == 0
    assert out.splitlines()[:-1] == ["L0H0 pair1.second -> pair1.first", "L1H0 query -> pair1.second"]


@pytest.mark.parametrize("hops", ["0", "16", "three"])
def test_a_number_of_hops_that_cannot_be_constructed_is_refused(capsys, hops):
    assert "hops" in one_line(*run(capsys, "theory", "construct", hops))


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
    assert "the facts form a cycle: b -> c -> b" in one_line(*run(capsys, "theory", "facts", round_and_round))


def test_the_one_layer_fetches_by_position_and_the_induction_head_does_not(capsys):
    asked = ("--examples", "256", "--json")
    rows = json.loads(run(capsys, "study", "content-or-position", "one_layer", *asked)[1])["heads"].values()
    attention = [row["from"]["query"] for row in rows]
    assert sum(to["to_position"] > 0.95 and to["to_role"] < 0.4 for to in attention) == 4
    upper = json.loads(run(capsys, "study", "content-or-position", "induction", *asked)[1])["heads"]["L1H0"]
    to = upper["from"]["query"]
    assert (upper["looks_at"], to["role"]) == ("content", "pair1.second")
    assert to["to_role"] > 2 * to["to_position"]
