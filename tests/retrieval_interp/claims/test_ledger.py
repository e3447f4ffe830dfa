import json
import shutil
from pathlib import Path

import pytest

from circuits import BadInput
from retrieval_interp.claims.claim import all_met
from retrieval_interp.claims.ledger import ledger
from retrieval_interp.cli import main
from retrieval_interp.models.library import data_folder
from tests.retrieval_interp.claims.conftest import edit

ROOT = Path(__file__).parents[3]


def test_the_ledger_has_the_rows_of_every_section_in_the_order_of_the_paper(tables):
    sections = [row.section.split(" ")[0] for row in ledger(tables)]
    assert [*dict.fromkeys(sections)] == ["4", "5", "7.2", "8.2", "9.2", "E"]
    assert len(sections) == 2 + 3 + 8 + 2 * 5 + 1 + 2 * 7 + 7 + 2 * 6


def test_a_rule_holds_if_every_case_meets_it_and_no_case_is_missing():
    assert all_met([True, True]) is True
    assert all_met([True, False], complete=False) is False
    assert all_met([True, True], complete=False) is None
    assert all_met([True, None]) is None
    assert all_met([False, None]) is False
    assert all_met([]) is None


@pytest.mark.parametrize(
    "table",
    [
        "transformer_a/report.json",
        "transformer_b/config.json",
        "transformer_c/log.jsonl",
        "transformer_d/circuit.yaml",
        "transformer_d/attention.csv",
        "paper_recipe/transformer_a_seed_1/config.json",
        "paper_recipe/transformer_d_seed_0/attention.csv",
        "sweeps/figure4_laptop/runs.csv",
        "sweeps/figure4_paper/runs.csv",
        "one_layer/config.json",
        "construction.json",
    ],
)
def test_a_missing_table_is_named_with_the_command_that_makes_it_and_the_command_fails(
    tables, table, monkeypatch, capsys
):
    (tables / table).unlink()
    with pytest.raises(BadInput, match=rf"{table}: missing; make it with: retrieval-interp"):
        ledger(tables)
    monkeypatch.setattr("retrieval_interp.models.library.data_folder", lambda: tables)
    with pytest.raises(SystemExit) as ended:
        main(["study", "claims", "--json"])
    assert ended.value.code == 2
    assert table in capsys.readouterr().err


@pytest.mark.parametrize(("left", "missing"), [("report.json", "circuit.yaml"), ("circuit.yaml", "report.json")])
@pytest.mark.parametrize("seed", [1, 3])
def test_a_circuit_without_its_report_or_the_other_way_round_is_missing_something(tables, left, missing, seed):
    folder = tables / "paper_recipe" / f"transformer_a_seed_{seed}"
    if seed == 3:
        shutil.copytree(folder.with_name("transformer_a_seed_0"), folder)
        edit(folder / "config.json", lambda config: config["made"].update(seed=3))
    shutil.copy(tables / "transformer_a" / left, folder / left)
    with pytest.raises(BadInput, match=rf"transformer_a_seed_{seed}/{missing}: missing"):
        ledger(tables)


def test_all_missing_tables_are_named_at_once(tables):
    missing = ["transformer_a/report.json", "transformer_b/log.jsonl", "transformer_d/attention.csv"]
    for table in missing:
        (tables / table).unlink()
    with pytest.raises(BadInput) as raised:
        ledger(tables)
    told = str(raised.value).split("; and ")
    assert sorted(one.split(": missing")[0] for one in told) == [str(tables / table) for table in missing]


@pytest.mark.parametrize("recipe", [{"max_grad_norm": 1.0}, {"steps": 12000}, {"initializer_range": None}])
def test_a_transformer_of_another_recipe_does_not_stand_for_the_papers(tables, recipe):
    folder = tables / "paper_recipe" / "transformer_a_seed_1"
    edit(folder / "config.json", lambda config: config["made"]["recipe"].update(recipe))
    with pytest.raises(BadInput, match=r"transformer_a_seed_1: expected a finished run by the paper's recipe"):
        ledger(tables)


def test_an_unfinished_run_is_no_seed(tables):
    folder = tables / "paper_recipe" / "transformer_a_seed_3"
    shutil.copytree(folder.with_name("transformer_a_seed_0"), folder)
    edit(folder / "config.json", lambda config: config["made"].update(seed=3))
    log = (folder / "log.jsonl").read_text().splitlines()
    (folder / "log.jsonl").write_text("\n".join(log[:-1]))
    with pytest.raises(BadInput, match=r"transformer_a_seed_3: expected a finished run"):
        ledger(tables)


def lacking(key):
    def change(report):
        for part in [report, *report["paths"]]:
            part.pop(key, None)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lacking("loss"), "expected an object with paths, verdicts, loss and passed"),
        (lacking("merges"), "lacks a value that a claim needs.*merges"),
        (lacking("paper"), "lacks a value that a claim needs.*paper"),
        (lacking("needed"), "lacks a value that a claim needs.*needed"),
        (lambda report: report.update(merges={}), "merges is no list"),
        (lacking("losses"), "lacks a value that a claim needs.*losses"),
        (lambda report: report["loss"]["details"]["combined"].update(mean="x"), "lacks a value that a claim needs"),
        (lambda report: report["loss"]["details"]["combined"].update(mean=-3), "expected numbers from 0"),
        (lambda report: report["paper"]["loss"].update(mean=float("nan")), "expected numbers from 0"),
        (lambda report: report.update(paths="abc"), "not a report"),
        (lambda report: report.update(discovery=[]), "not a report"),
        (lambda report: report["metadata"].update(model="transformer_z"), "belongs to another model, transformer_z"),
        (lambda report: report["paths"].pop(), "belongs to another circuit than circuit.yaml"),
    ],
)
def test_a_report_that_lacks_something_or_is_of_something_else_is_one_line_that_names_it(tables, change, message):
    edit(tables / "transformer_a" / "report.json", change)
    with pytest.raises(BadInput, match=f"transformer_a/report.json: .*({message})") as raised:
        ledger(tables)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["[", "[]", '{"paths": []}', '{"paths": [], "merges": []}'])
def test_a_damaged_report_is_one_line(tables, content):
    (tables / "transformer_a" / "report.json").write_text(content)
    with pytest.raises(BadInput, match=r"report.json: not a report of `validate --json`"):
        ledger(tables)


@pytest.mark.parametrize("loss", [-3, float("nan"), "low", None])
def test_a_loss_that_is_no_loss_is_refused(tables, loss):
    file = tables / "transformer_a" / "config.json"
    edit(file, lambda config: config["made"]["exported"]["loss_float16"].update(mean=loss))
    with pytest.raises(BadInput, match=r"transformer_a/config.json: no loss of `models export`"):
        ledger(tables)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [lines[0].replace('"step": 100', '"step": -100'), *lines[1:]],
        lambda lines: [lines[0].replace("1.0", "NaN"), *lines[1:]],
        lambda lines: [lines[0], lines[1].replace('"x2"', '"x9"'), *lines[2:]],
    ],
)
def test_a_log_out_of_order_or_with_other_losses_is_refused(tables, change):
    file = tables / "transformer_a" / "log.jsonl"
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(BadInput, match=r"transformer_a/log.jsonl, line [12]: not a line of a training log"):
        ledger(tables)


def test_the_page_of_the_claims_is_the_ledger_as_it_stands(tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["study", "claims", "--out", str(tmp_path / "claims.md")])
    assert ended.value.code == 0
    assert (tmp_path / "claims.md").read_text() == (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def test_the_claims_can_be_read_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["study", "claims"])
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "0.0987 ± 0.0012" in printed


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
