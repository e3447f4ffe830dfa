import json
import re
import shutil
from pathlib import Path

import pytest

from circuits import BadInput
from retrieval_interp.claims.departures import departures
from retrieval_interp.claims.found_circuits import joins_pairs
from retrieval_interp.claims.ledger import ledger
from retrieval_interp.claims.tables import FIGURE4, PAPER, SMALL, TableMissing
from retrieval_interp.cli import main
from retrieval_interp.models.library import data_folder

ROOT = Path(__file__).parents[3]


def path(name, uniform, identity, first=False):
    head, source, _, target = name.split(" ")
    return {
        "path": name,
        "layer": int(head[1]),
        "index": int(head[3]),
        "needed": "directly",
        "from": source,
        "to": target,
        "losses": {"uniform": uniform, "identity": identity},
        "in_first_useful_layer": first,
    }


D = SMALL.folders["D"]


@pytest.fixture
def tables(tmp_path):
    """Eight transformers of whom everything is known by hand; all learn x1 before x2.

    Those of recipe ``small`` have circuits. Those of the paper's recipe have none, and a loss of 0.5.
    """
    for models, name in [(own, name) for own in (SMALL, PAPER) for name in own.folders.values()]:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        loss = {"mean": 0.005 if models is SMALL else 0.5, "standard_error": 0.0005}
        config = {
            "format": 1,
            "task": {},
            "architecture": {},
            "made": {"seed": 7, "exported": {"precision": "float16", "loss_float16": loss}},
        }
        (folder / "config.json").write_text(json.dumps(config))
        lines = [
            {"step": step, "loss": 0.5, "components": {"x1": x1, "x2": x2}}
            for step, x1, x2 in ((100, 1.0, 1.0), (200, 0.0, 1.0), (300, 0.0, 0.0))
        ]
        if name == models.folders["D"]:
            lines = [{**line, "components": {**line["components"], "x3": 1.0}} for line in lines]
            lines.append({"step": 400, "loss": 0.0, "components": {"x1": 0.0, "x2": 0.0, "x3": 0.0}})
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if models is PAPER:
            continue
        paths = [path("L0H0 * -> previous", 0.07, 0.3, first=True), path("L1H0 query -> pair1.second", 0.2, 0.4)]
        combined = {"mean": 0.03, "standard_error": 0.001}
        report = {
            "metadata": {"model": name},
            "verdicts": [],
            "passed": True,
            "threshold": 0.05,
            "loss": {"combined": 0.03, "details": {"combined": combined}},
            "paths": paths,
            "merges": [{"from": "L0H0", "into": "L1H0", "loss": 0.3, "standard_error": 0.01}],
        }
        (folder / "report.json").write_text(json.dumps(report))
    for name in SMALL.folders.values():
        (tmp_path / name / "circuit.yaml").write_text("heads:\n  L0H0: previous\n  L1H0: {query: pair1.second}\n")
    circuit = "heads:\n  L1H0: {query: pair1.second}\n  L2H0: {query: pair2.second}\n  L3H0: {query: pair3.second}\n"
    (tmp_path / D / "circuit.yaml").write_text(circuit)
    report = json.loads((tmp_path / D / "report.json").read_text())
    report["paths"] = [path(f"L{k}H0 query -> pair{k}.second", 0.2, 0.4, first=k == 1) for k in (1, 2, 3)]
    (tmp_path / D / "report.json").write_text(json.dumps(report))
    columns = ",".join(f"L{k}H0 query -> pair{k}.second" for k in (1, 2, 3))
    rows = "0,0,0,0\n90,0,0,0\n100,1,0,0\n120,1,1,0\n200,1,1,1\n"  # above 0.5 at steps 95, 110 and 160
    for models in (SMALL, PAPER):
        (tmp_path / models.folders["D"] / "attention.csv").write_text(f"# by hand\nstep,{columns}\n{rows}")
    (tmp_path / "depth_sweep").mkdir()
    world = {"step_order": "last_first", "n_heads": 8, "mlps": "every", "seed": 0, "steps": 100, "stopped": 100}
    trained = [(1, 1, {"x1": 0.02}), (2, 1, {"x1": 0.8, "x2": 0.76}), (2, 3, {"x1": 0.01, "x2": 0.02})]
    runs = [{"n_steps": hops, "n_layers": layers, "losses": losses} | world for hops, layers, losses in trained]
    (tmp_path / "depth_sweep" / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    for table in FIGURE4:
        (tmp_path / table).parent.mkdir(parents=True)
        (tmp_path / table).write_text(SWEPT)
    return tmp_path


SWEPT = """# by hand: x1 with two layers, all with four; alone never
preset,seed,symbol,loss,fell,seconds,device
laptop_ic_2,0,x1,0.1,100,1,cpu
laptop_ic_2,0,x2,0.8,,1,cpu
laptop_ic_2,0,x3,0.8,,1,cpu
laptop_ic_4,0,x1,0.1,100,1,cpu
laptop_ic_4,0,x2,0.1,200,1,cpu
laptop_ic_4,0,x3,0.2,300,1,cpu
laptop_nonic_4,0,x3,0.75,,1,cpu
"""


def section_7(tables):
    rows = [row for row in ledger(tables) if row.section == "7.2"]
    swept = {row.claim.split(" ")[0]: row for row in rows if not row.models.startswith("A to D")}
    return swept | {row.models: row for row in rows if row.models.startswith("A to D")}


def test_the_statements_of_section_7_are_counted_in_the_runs_of_the_sweep(tables):
    rows = section_7(tables)
    assert rows["without"].measured == "1 of 1 [0.21, 1.00] runs (lowest loss 0.750)"
    assert rows["without"].models == "D = 3, 4 layers of 4 heads"
    assert "x1, x2, x3: 0.100, 0.450, 0.500;" in rows["later"].measured
    assert rows["later"].measured.endswith(": 2, 4, 4")
    assert rows["partial"].measured.startswith("1 of 1 [0.21, 1.00] runs in which two or more fell (in 0 runs two")
    assert rows["partial"].models == "D = 3, 2 to 4 layers of 4 heads"
    for recipe in ("small", "paper"):
        assert rows[f"A to D, recipe {recipe}"].measured == "4 of 4 [0.51, 1.00] runs"
    assert {row.verdict for row in rows.values()} == {"holds at smaller scale"}  # fewer than 64 runs


def test_one_run_that_says_otherwise_turns_the_verdict(tables):
    swept = SWEPT.replace("x3,0.75,", "x3,0.65,").replace("ic_4,0,x2,0.1,200", "ic_4,0,x2,0.1,400")
    for table in FIGURE4:
        (tables / table).write_text(swept.replace("ic_2,0,x1,0.1", "ic_2,0,x1,0.9"))
    rows = section_7(tables)
    assert rows["later"].measured.endswith(": 4, 4, 4")
    assert {rows[kind].verdict for kind in ("without", "later", "partial")} == {"differs"}


def test_a_symbol_that_no_depth_learns_does_not_need_more_layers(tables):
    for table in FIGURE4:
        (tables / table).write_text(SWEPT.replace("ic_4,0,x3,0.2,300", "ic_4,0,x3,0.9,"))
    later = section_7(tables)["later"]
    assert later.measured.endswith(": 2, 4, none")
    assert later.verdict == "differs"


def found(tables, recipe="small"):
    """The rows of the models of one recipe, and those of no recipe."""
    rows = [row for row in ledger(tables) if "recipe" not in row.models or f"recipe {recipe}" in row.models]
    return {(row.section, row.claim.split(": ")[-1]): row for row in rows}


def test_every_row_says_what_was_measured_and_whether_it_holds(tables):
    rows = found(tables)
    assert rows["8.2", "validation MSE"].measured == ", ".join(["0.0050 ± 0.0005"] * 3)
    assert rows["8.2", "validation MSE"].verdict == "holds at smaller scale"
    assert rows["8.2", "validation MSE"].models == "recipe small, seeds 7, 7, 7"
    assert rows["8.2", "heads in the circuit"].measured == "2, 2, 2 with at least one directly needed path"
    assert rows["8.2", "heads in the circuit"].verdict == "differs"
    assert rows["8.2", "the first useful head joins the members of every pair"].measured == "3 of 3"
    assert rows["8.2", "apart from the first head, the circuits are very different"].verdict == "differs"  # all alike
    assert rows["8.2", "fewer heads would be enough"].verdict == "differs"
    assert rows["E", "MSE with one path above the first useful layer removed"].verdict == "holds at smaller scale"
    first = rows["E", "MSE with the row of a path in the first useful layer made uniform"]
    assert (first.measured, first.verdict) == ("0.070 to 0.200", "differs")
    removed = rows["E", "MSE with one path above the first useful layer removed"]
    assert removed.measured == "0.200 to 0.400 (row uniform or identity); 5 of 5 paths reach 0.17 with both"
    assert rows["9.2 ii", "a head above it quickly reuses it to fetch x2"].verdict == "not measured"  # 15 of 20 steps
    assert rows["9.2 iv", "the last head emerges much later than the one before"].verdict == "holds at smaller scale"
    assert "15, 50 steps" in rows["9.2 iv", "the last head emerges much later than the one before"].measured


def test_the_bound_is_held_against_every_model_with_fewer_layers(tables):
    rows = found(tables)
    theorem = next(row for row in rows.values() if "Theorem 1" in row.claim)
    assert theorem.measured.startswith("0 of 1 [0.00, 0.79] models")
    assert theorem.measured.endswith("(loss below 0.7; lowest loss 0.760)")
    assert theorem.verdict == "holds at smaller scale"
    assumption = next(row for row in rows.values() if "Assumption 1" in row.claim)
    assert assumption.measured.startswith("1 of 2 [0.09, 0.91] models")
    assert assumption.measured.endswith("; 1 with MLPs, 8 heads, pairs shuffled within blocks")
    assert (assumption.runs, assumption.verdict) == (2, "differs")


def test_a_number_on_the_other_side_turns_the_verdict(tables):
    report = json.loads((tables / "transformer_b" / "report.json").read_text())
    report["paths"][1]["losses"]["identity"] = 0.1
    report["merges"][0]["loss"] = 0.04
    report["loss"]["combined"] = 0.06
    (tables / "transformer_b" / "report.json").write_text(json.dumps(report))
    rows = found(tables)
    assert rows["E", "MSE with one path above the first useful layer removed"].verdict == "differs"
    assert rows["E", "MSE with every head replaced with its mechanism"].verdict == "differs"
    assert rows["8.2", "fewer heads would be enough"].verdict == "holds at smaller scale"


def test_a_transformer_whose_circuit_was_not_found_is_named_and_no_claim_holds_without_it(tables):
    report = json.loads((tables / "transformer_c" / "report.json").read_text())
    (tables / "transformer_c" / "report.json").write_text(json.dumps({**report, "discovery": {"found": False}}))
    row = found(tables)["8.2", "the first useful head joins the members of every pair"]
    unknown = "no circuit found for C (its own loss is 0.0050 ± 0.0005)"
    assert (row.measured, row.runs, row.verdict) == (f"2 of 2; {unknown}", 2, "differs")
    for row in found(tables).values():
        if row.section in ("8.2", "E") and "validation MSE" not in row.claim:
            assert row.measured.endswith(unknown), row
            assert row.verdict == "differs"


def test_without_any_circuit_what_is_said_of_circuits_is_not_measured(tables):
    rows = found(tables, recipe="paper")
    assert (rows["8.2", "validation MSE"].verdict, rows["9.2", "validation MSE"].verdict) == ("differs", "differs")
    of_circuits = [row for (section, what), row in rows.items() if section in ("8.2", "E") and what != "validation MSE"]
    of_circuits.append(rows["9.2", "MSE with all attention replaced with its circuit"])
    assert {row.verdict for row in of_circuits} == {"not measured"}
    assert all(row.measured.startswith("no circuit found") for row in of_circuits)
    # Without a circuit, the paths with much attention are followed: at steps 95, 110 and 160.
    assert "15, 50 steps" in rows["9.2 iv", "the last head emerges much later than the one before"].measured
    assert rows["9.2 iv", "the last head emerges much later than the one before"].verdict == "holds"
    assert rows["9.2 i", "an induction head emerges first and abruptly"].verdict == "differs"  # at epoch 12


def test_other_seeds_are_counted_beside(tables):
    folder = tables / "paper_recipe"
    for letter, seed in (("a", 3), ("d", 1)):
        shutil.copytree(folder / f"transformer_{letter}_seed_0", folder / f"transformer_{letter}_seed_{seed}")
    shutil.copytree(folder / "transformer_d_seed_0", folder / "transformer_d_seed_0_clipping")  # another recipe
    rows = found(tables, recipe="paper")
    assert rows["8.2", "validation MSE"].measured.endswith("; below 0.01 in 0 of 4 seeds")
    assert rows["9.2", "validation MSE"].measured.endswith("The rule is met in 0 of 2 seeds.")
    assert section_7(tables)["A to D, recipe paper"].measured == "6 of 6 [0.61, 1.00] runs"


def test_partial_losses_out_of_order_are_counted(tables):
    log = tables / "transformer_c" / "log.jsonl"
    log.write_text(log.read_text().replace("x1", "x3"))  # x3 before x2
    log.write_text(re.sub(r'"x3": ([\d.]+), "x2": ([\d.]+)', r'"x2": \2, "x3": \1', log.read_text()))
    row = section_7(tables)["A to D, recipe small"]
    assert (row.measured, row.verdict) == ("3 of 4 [0.30, 0.95] runs", "differs")


def test_runs_in_which_fewer_than_two_partial_losses_fell_are_counted_apart(tables):
    """By the protocol's rule they are in order; they say nothing about it."""
    log = tables / "transformer_c" / "log.jsonl"
    log.write_text(re.sub(r'"(x[23])": [\d.]+', r'"\1": 0.75', log.read_text()))
    row = section_7(tables)["A to D, recipe small"]
    assert "4 of 4" in row.measured
    assert "1 of them fewer than two symbols fell" in row.measured


@pytest.mark.parametrize(
    "table",
    [
        "transformer_a/report.json",
        "transformer_b/config.json",
        "transformer_c/log.jsonl",
        "transformer_d/circuit.yaml",
        "transformer_d/attention.csv",
        "sweeps/figure4_laptop/runs.csv",
        "sweeps/figure4_paper/runs.csv",
    ],
)
def test_a_missing_table_is_named_with_the_command_that_makes_it_and_the_command_fails(
    tables, table, monkeypatch, capsys
):
    (tables / table).unlink()
    with pytest.raises(TableMissing, match=rf"{table}: missing; make it with: retrieval-interp"):
        ledger(tables)
    monkeypatch.setattr("retrieval_interp.models.library.data_folder", lambda: tables)
    with pytest.raises(SystemExit) as ended:
        main(["study", "claims", "--json"])
    assert ended.value.code == 1
    assert table in capsys.readouterr().err


def test_all_missing_tables_are_named_at_once(tables):
    missing = ["transformer_a/report.json", "transformer_b/log.jsonl", "transformer_d/attention.csv"]
    for table in missing:
        (tables / table).unlink()
    with pytest.raises(TableMissing) as raised:
        ledger(tables)
    lines = str(raised.value).splitlines()
    assert sorted(line.split(": missing")[0] for line in lines) == [str(tables / table) for table in missing]


def lacking(key):
    def change(report):
        for part in [report, *report["paths"]]:
            part.pop(key, None)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lacking("threshold"), "lacks a value that a claim needs.*threshold"),
        (lacking("loss"), "expected an object with paths, verdicts, loss and passed"),
        (lacking("merges"), "lacks a value that a claim needs.*merges"),
        (lambda report: report.update(merges={}), "no list of merges"),
        (lacking("losses"), "lacks a value that a claim needs.*losses"),
        (lambda report: report["loss"].update(combined="x"), "lacks a value that a claim needs"),
        (lambda report: report.update(paths="abc"), "not a report"),
        (lambda report: report.update(discovery=[]), "not a report"),
        (lambda report: report["metadata"].update(model="transformer_z"), "belongs to another model, transformer_z"),
        (lambda report: report["paths"].pop(), "belongs to another circuit than circuit.yaml"),
    ],
)
def test_a_report_that_lacks_something_or_is_of_something_else_is_one_line(tables, change, message):
    report = json.loads((tables / "transformer_a" / "report.json").read_text())
    change(report)
    (tables / "transformer_a" / "report.json").write_text(json.dumps(report))
    with pytest.raises(BadInput, match=message):
        ledger(tables)


@pytest.mark.parametrize("content", ["[", "[]", '{"paths": []}', '{"paths": [], "merges": []}'])
def test_a_damaged_report_is_one_line(tables, content):
    (tables / "transformer_a" / "report.json").write_text(content)
    with pytest.raises(BadInput, match=r"report.json: not a report of `validate --json`"):
        ledger(tables)


@pytest.mark.parametrize(
    ("own", "fixed", "joins"),
    [
        (["L0H0 * -> previous"], [], True),
        (["L0H0 pair1.second -> pair1.first", "L0H0 pair2.second -> pair2.first"], [], True),
        ([], ["L0H0 pair1.second -> pair1.first", "L0H0 pair2.second -> pair2.first"], True),
        (["L0H0 pair1.second -> pair1.first"], ["L0H1 pair2.second -> pair2.first"], True),
        (["L0H0 pair1.second -> pair1.first"], [], False),  # not pair 2
        ([], ["L0H0 pair1.second -> pair1.first on slot 0, 2", "L0H0 pair2.second -> pair2.first"], False),
        (["L0H1 * -> previous"], ["L0H0 pair1.second -> pair1.first on slot 0, 2"], True),
        (["L0H0 * -> previous", "L0H0 query -> pair1.first"], [], False),
        (["L0H0 pair1.second -> pair2.first", "L0H0 pair2.second -> pair2.first"], [], False),
    ],
)
def test_only_a_first_layer_that_joins_every_pair_on_all_slots_joins_the_pairs(own, fixed, joins):
    paths = [{"path": name} for name in [*own, "L1H0 query -> pair1.second", "L2H0 query -> pair2.second"]]
    report = {"paths": paths, "flow_check": {"fixed_paths": fixed}}
    assert joins_pairs(report) == joins
    assert not joins_pairs(report, [own[0]] if own else fixed)


def test_a_circuit_whose_first_head_does_something_else_than_join_pairs_is_counted(tables):
    other = "heads:\n  L0H0: {pair1.second: pair1.first, query: pair1.first}\n  L1H0: {query: pair1.second}\n"
    (tables / "transformer_b" / "circuit.yaml").write_text(other)
    report = json.loads((tables / "transformer_b" / "report.json").read_text())
    fetch = report["paths"][1]
    firsts = [f"L0H0 {source} -> pair1.first" for source in ("pair1.second", "query")]
    report["paths"] = [*(path(name, 0.07, 0.3, first=True) for name in firsts), fetch]
    (tables / "transformer_b" / "report.json").write_text(json.dumps(report))
    row = found(tables)["8.2", "the first useful head joins the members of every pair"]
    assert (row.measured, row.verdict) == ("2 of 3", "differs")


def test_a_first_head_whose_fixed_pattern_joins_the_pairs_is_counted(tables):
    report = json.loads((tables / "transformer_a" / "report.json").read_text())
    report["paths"] = [path("L1H0 query -> pair1.second", 0.2, 0.4)]
    report["flow_check"] = {"fixed_paths": ["L0H0 pair1.second -> pair1.first", "L0H0 pair2.second -> pair2.first"]}
    (tables / "transformer_a" / "report.json").write_text(json.dumps(report))
    (tables / "transformer_a" / "circuit.yaml").write_text("heads:\n  L1H0: {query: pair1.second}\n")
    rows = found(tables)
    assert rows["8.2", "the first useful head joins the members of every pair"].measured == "3 of 3"
    assert rows["8.2", "heads in the circuit"].measured == "1, 2, 2 with at least one directly needed path"


def test_the_page_of_the_claims_is_the_ledger_as_it_stands(tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["study", "claims", "--out", str(tmp_path / "claims.md")])
    assert ended.value.code == 0
    assert (tmp_path / "claims.md").read_text() == (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_readme_gives_for_every_transformer_the_numbers_of_its_report():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in readme.splitlines() if line.startswith("| ")}
    for place, letter in enumerate("abcd"):
        report = json.loads((data_folder() / f"transformer_{letter}" / "report.json").read_text())
        loss = report["loss"]["details"]["combined"]
        said = {row: cells[place].strip() for row, cells in table.items() if len(cells) == 4}
        assert said["MSE with every head replaced"] == f"{loss['mean']:.4f} ± {loss['standard_error']:.4f}"
        holds = said["does the circuit hold?"].split(";")[0].split(":")[0]
        assert holds == {"holds": "yes", "fails": "no"}[report["decision"]]
        heads = {path["path"].split()[0] for path in report["paths"]}
        assert (
            said["attention paths, without those of fixed patterns"] == f"{len(report['paths'])} in {len(heads)} heads"
        )


@pytest.mark.parametrize(
    ("step", "verdict", "way"),
    [
        (100, "holds", "100%"),
        (199, "holds", "50%"),
        (220, "differs", "43%"),
        (800, "differs", "0%"),
        (None, "differs", "0%"),
    ],
)
def test_a_departure_decides_if_alone_it_goes_half_of_the_way_in_log_steps(tables, step, verdict, way):
    def learns_x1_at(folder, when):
        folder.mkdir(exist_ok=True)
        recipe = {"steps": 1000, "max_grad_norm": 1, "decay": 0.0}
        config = {"format": 1, "task": {}, "architecture": {}, "made": {"seed": 7, "recipe": recipe}}
        (folder / "config.json").write_text(json.dumps(config))
        losses = {10: 1.0, 1000: 1.0} if when is None else {when - 1: 1.0, when + 1: 0.0, 1000: 0.0}
        lines = [json.dumps({"step": at, "loss": x1, "components": {"x1": x1}}) for at, x1 in losses.items()]
        (folder / "log.jsonl").write_text("\n".join(lines))

    paper = tables / PAPER.folders["D"]
    learns_x1_at(paper, 400)
    learns_x1_at(tables / SMALL.folders["D"], 100)
    learns_x1_at(paper.with_name(f"{paper.name}_clipping"), step)
    found = {one.claim: one for one in departures(tables)}
    decided = found.pop("D, one seed: clipping alone decides when x1 is learned")
    assert decided.verdict == verdict
    assert f" {way} of the way" in decided.measured
    assert [one.verdict for one in found.values()] == ["not measured"] * 6  # two others of D, four of A


@pytest.mark.parametrize("recipe", [{"steps": 1000, "max_grad_norm": 1}, {"steps": 200, "max_grad_norm": None}])
def test_a_run_that_is_unfinished_or_has_not_the_setting_decides_nothing(tables, recipe):
    run = tables / f"{PAPER.folders['D']}_clipping"
    shutil.copytree(tables / PAPER.folders["D"], run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "made": {**config["made"], "recipe": recipe}}))
    found = {one.claim: one.verdict for one in departures(tables)}
    assert found["D, one seed: clipping alone decides when x1 is learned"] == "not measured"
