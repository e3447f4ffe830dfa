import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from circuits import Circuit, Head, OneHot, save_circuit
from circuits.circuit import AttentionPath
from circuits.mechanisms import Previous
from retrieval_interp.experiments.emergence import circuit_to_follow, emergence
from retrieval_interp.experiments.observations import arrived, observations
from retrieval_interp.experiments.path_attention import path_attention
from retrieval_interp.models import presets
from retrieval_interp.models.checkpoints import load_model
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.training import training
from retrieval_interp.training.curves import first_crossing
from tests.command import exit_code, refusal
from tests.handmade import walking_circuit

# The induction head below, then one head for each further symbol.
CIRCUIT = walking_circuit(3).with_head(Head(0, 0), Previous())
PATHS = [str(path) for path in CIRCUIT.paths]
LOG = [  # step, and the validation losses of x1, x2, x3
    (100, 0.9, 0.9, 0.9),
    (200, 0.1, 0.9, 0.9),
    (300, 0.1, 0.3, 0.7),
    (400, 0.1, 0.1, 0.1),
]
ATTENTION = pd.DataFrame(
    [[0.1, 0.0, 0.0, 0.0], [0.9, 0.9, 0.1, 0.0], [1.0, 1.0, 0.9, 0.0], [1.0, 1.0, 1.0, 0.8]],
    index=pd.Index([100, 200, 300, 400], name="step"),
    columns=PATHS,
)


def write_log(folder, validated):
    """Write a log in which the training losses stay at 1."""
    lines = []
    for step, *parts in validated:
        validation = {"loss": sum(parts) / 3, "components": dict(zip(("x1", "x2", "x3"), parts, strict=True))}
        lines.append({"step": step, "loss": 1.0, "components": dict.fromkeys(("x1", "x2", "x3"), 1.0)})
        lines[-1]["validation"] = validation
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def written(folder, attention=ATTENTION):
    """A run folder as it is kept in data/: a log and the measured table."""
    write_log(folder, LOG)
    attention.to_csv(folder / "attention.csv")
    save_circuit(CIRCUIT, folder / "circuit.yaml")
    return folder


def test_a_crossing_is_interpolated_between_two_checkpoints():
    assert first_crossing({100: 0.1, 200: 0.9}, 0.5) == 150
    assert first_crossing({100: 0.7, 200: 0.9}, 0.5) == 100
    assert first_crossing({100: 0.1, 200: 0.5}, 0.5) is None
    assert first_crossing({0: 0.1, 8: 0.9, 16: 0.1, 24: 0.9}, 0.5) == 4


def test_attention_along_the_paths_of_a_model_written_by_hand_is_one_and_elsewhere_nothing(model, task):
    paths = [AttentionPath(Head(0, 0), "*", "previous"), AttentionPath(Head(0, 0), "pair1.second", "pair1.first")]
    paths += [AttentionPath(Head(1, 0), "query", f"pair1.{member}") for member in ("second", "first")]
    attention = path_attention(model, task.examples(16, seed=0), paths)
    assert torch.allclose(attention, torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-3)


def test_steps_epochs_and_losses_come_out_as_by_hand(tmp_path):
    run = emergence(written(tmp_path), CIRCUIT)
    assert list(run.emerged.values()) == pytest.approx([150, 155.5556, 250, 362.5], abs=1e-3)
    assert run.table()["epoch"].tolist() == pytest.approx([18.75, 19.4444, 31.25, 45.3125], abs=1e-3)
    assert list(observations(run)[2].numbers["steps"].values()) == pytest.approx([150, 266.6667, 333.3333], abs=1e-3)
    assert run.validated["x2"] == {100: 0.9, 200: 0.9, 300: 0.3, 400: 0.1}


def test_a_symbol_arrives_when_all_that_bring_it_have_emerged(tmp_path):
    takes_over = {"query": "pair1.second", "pair1.second": "pair2.second"}
    doubling = Circuit({Head(1, 0): OneHot(takes_over), Head(2, 0): OneHot({"query": "pair1.second"})})
    # The query looks twice before the first pair takes over what the second holds.
    emerged = {"L1H0 query -> pair1.second": 100, "L2H0 query -> pair1.second": 200}
    emerged["L1H0 pair1.second -> pair2.second"] = 300
    steps = [0, 100, 200, 300, 400]
    curves = {name: {step: float(step > at) for step in steps} for name, at in emerged.items()}
    run = replace(emergence(written(tmp_path), CIRCUIT), circuit=doubling, all_paths=curves)
    first, second = (AttentionPath(Head(layer, 0), "query", "pair1.second") for layer in (1, 2))
    assert arrived(run) == {1: (first, 150.0), 2: (second, 350.0)}
    assert (observations(run)[1].numbers["path"], observations(run)[1].numbers["lag"]) == (str(second), 200.0)


def test_the_papers_four_observations_hold_for_a_run_made_like_its_own(tmp_path):
    run = emergence(written(tmp_path, ATTENTION.rename(index={100: 1000, 200: 1100, 300: 1140, 400: 1900})), CIRCUIT)
    said = observations(run)
    assert [(one.name, one.holds) for one in said] == [("i", True), ("ii", True), ("iii", True), ("iv", True)]
    assert said[0].numbers["step"] == pytest.approx(1055.5556, abs=1e-3)
    assert said[3].numbers == pytest.approx({"x2": 64.4444, "x3": 495.0}, abs=1e-3)
    backwards = replace(
        run,
        all_paths=dict(zip((PATHS[0], *PATHS[:0:-1]), run.attention.values(), strict=True)),
        losses={**run.losses, "validation_x1": run.losses["validation_x3"], "validation_x3": {100: 0.1, 200: 0.1}},
    )
    assert [one.decision for one in observations(backwards)] == ["fails"] * 4


def test_what_never_emerges_and_what_is_no_chain_show_nothing(tmp_path):
    run = emergence(written(tmp_path, ATTENTION.assign(**dict.fromkeys(PATHS[1:], 0.0))), CIRCUIT)
    assert run.emerged[PATHS[1]] is None
    assert [one.holds for one in observations(run)] == [None, None, True, None]
    renamed = replace(run, losses={name.replace("x3", "z"): curve for name, curve in run.losses.items()})
    assert arrived(renamed) == {}


@pytest.mark.parametrize(
    ("falls", "holds"),
    [
        ({"x1": 200, "x2": 300, "x3": 400}, True),
        ({"x1": 300, "x2": 400, "x3": 500}, True),
        ({"x1": 200, "x2": 400, "x3": 300}, False),
        ({"x1": 400, "x2": 300, "x3": 500}, False),  # x2 before x1
        ({"x1": 200, "x2": 300, "x3": 300}, None),  # between the same two validations
        ({"x1": 300, "x2": 300, "x3": 400}, None),
        ({"x1": 200, "x2": 300, "x3": 900}, False),  # never
    ],
)
def test_the_last_two_validation_losses_fall_in_order_after_the_others(tmp_path, falls, holds):
    run = written(tmp_path)
    write_log(
        run, [(step, *(0.9 if step < at else 0.1 for at in falls.values())) for step in (100, 200, 300, 400, 500)]
    )
    assert observations(emergence(run, CIRCUIT))[2].holds is holds


def test_a_lag_that_is_shorter_than_the_distance_of_the_checkpoints_is_not_resolved(tmp_path):
    slow = ATTENTION.rename(index={100: 1000, 200: 1100, 300: 1200, 400: 1900})
    _, reuse, *_ = observations(emergence(written(tmp_path, slow), CIRCUIT))
    assert reuse.numbers["lag"] == pytest.approx(94.4444, abs=1e-3)
    assert reuse.numbers["between_checkpoints"] == 100
    assert reuse.holds is None


def test_how_abruptly_a_head_emerges_cannot_be_said_when_the_first_checkpoint_comes_too_late(tmp_path):
    late = ATTENTION.assign(**{PATHS[1]: [0.3, 0.9, 1.0, 1.0]})
    first, *_ = observations(emergence(written(tmp_path, late), CIRCUIT))
    assert (first.holds, first.numbers["rise"]) == (None, None)


def test_checkpoints_are_measured_where_no_table_was_kept(tmp_path, monkeypatch):
    micro = Preset(
        RetrievalTask(n_steps=3, n_chains=2),
        Architecture(n_layers=4, n_heads=1, d_model=16, d_head=16),
        Recipe(steps=20, batch=4, training_examples=40, checkpoint_every=10),
    )
    monkeypatch.setitem(presets.PRESETS, "micro", micro)
    training.start_run(tmp_path / "run", "micro")
    training.train_run(tmp_path / "run", "cpu", compiled=False)
    told = []
    run = emergence(tmp_path / "run", CIRCUIT, progress=told.append)
    assert run.source == "2 checkpoints, 32 sequences each"
    assert {tuple(curve) for curve in run.attention.values()} == {(10, 20)}
    assert told == [0.5, 1.0]
    model, task = load_model(tmp_path / "run")  # the weights of the last step
    assert [curve[20] for curve in run.attention.values()] == pytest.approx(
        path_attention(model, task.examples(32, 0), CIRCUIT.paths).tolist()
    )
    # What is written can be kept instead of the checkpoints, and says the same.
    save_circuit(CIRCUIT, tmp_path / "run" / "circuit.yaml")
    assert exit_code("study", "emergence", tmp_path / "run", "--out", tmp_path / "out") == 0
    (tmp_path / "run" / "attention.csv").write_text((tmp_path / "out" / "attention.csv").read_text())
    again = emergence(tmp_path / "run", CIRCUIT)
    assert again.source == "2 checkpoints, read from attention.csv"
    for path, curve in run.all_paths.items():
        assert again.all_paths[path] == pytest.approx(curve, abs=1e-4)
    # Four heads, each with the position before and 21 pairs of roles: other circuits can be followed as well.
    assert len(again.all_paths) == 4 * (1 + 21)
    other = Circuit({Head(3, 0): OneHot({"pair1.second": "pair3.second"})})
    assert list(emergence(tmp_path / "run", other).attention) == ["L3H0 pair1.second -> pair3.second"]


def test_the_command_writes_an_offline_page_with_its_tables_and_keeps_the_command_that_measured_them(tmp_path, capsys):
    run = tmp_path / "<b>run"
    run.mkdir()
    (written(run) / "attention.csv").write_text("# measured with care\n" + (run / "attention.csv").read_text())
    assert exit_code("study", "emergence", run, "--seed", 5, "--out", tmp_path / "out", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document["observations"]] == ["i", "ii", "iii", "iv"]
    assert [row["path"] for row in document["paths"]] == PATHS
    page = (tmp_path / "out" / "emergence.html").read_text()
    assert "<script src" not in page
    assert "<b>run" not in page
    assert all(f'id="{figure}"' in page for figure in ("losses", "emerged", "paths"))
    assert (tmp_path / "out" / "attention.csv").read_text().startswith("# measured with care\n")


def test_a_run_without_a_circuit_is_followed_along_the_paths_with_much_attention(tmp_path):
    run = written(tmp_path)
    (run / "circuit.yaml").unlink()
    others = {PATHS[-1]: [0.0, 0.1, 0.2, 0.5], "L3H0 query -> pair1.first": [0.0, 0.6, 0.0, 0.0]}
    others["L3H0 query -> pair2.first"] = [0.0, 0.0, 0.55, 0.0]  # of two targets, the other has more
    ATTENTION.assign(**others).to_csv(run / "attention.csv")
    assert [str(path) for path in circuit_to_follow(run).paths] == [*PATHS[:-1], "L3H0 query -> pair1.first"]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        ("attention.csv", "holds 0 checkpoints and no attention.csv"),
        ("attention.csv: step,a\n1,0.5\n2,0.5\n", "without a column 'L0H0 * -> previous'"),
        ("attention.csv: nothing\n", "not a table of attention along paths"),
        ("attention.csv: step,a\n2,0.5\n1,0.5\n", "in ascending order"),
        ("attention.csv: step,a\n1,0.5\n2,nan\n", "not between 0 and 1"),
        ('log.jsonl: {"step": 1}\n', "line 1: not a line of a training log"),
        ("log.jsonl", "log.jsonl: no such file"),
        ("circuit.yaml attention.csv", "has no circuit.yaml and no attention.csv"),
        ("circuit.yaml: heads:\n  L0H0: uniform\n", "no attention path"),
    ],
)
def test_bad_input_is_one_line_that_names_it(tmp_path, capsys, spoil, expected):
    names, _, content = spoil.partition(": ")
    written(tmp_path)
    for name in names.split():
        (tmp_path / name).write_text(content) if content else (tmp_path / name).unlink()
    assert expected in refusal(capsys, "study", "emergence", tmp_path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
