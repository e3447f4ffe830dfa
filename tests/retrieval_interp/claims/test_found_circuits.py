import json
import shutil

import pytest

from circuits import BadInput
from retrieval_interp.claims.found_circuit import found_circuit
from retrieval_interp.claims.found_circuits import fewest_heads, section_8
from retrieval_interp.claims.tables import PAPER, SMALL
from tests.retrieval_interp.claims.conftest import edit, path, write_circuit

JOINS = "the first useful head joins the members of every pair"
HEADS, DIFFERENT = "heads in the circuit", "apart from the first head, the circuits are very different"
MERGED, LOSS = "two trained heads can be merged", "validation MSE"


def circuits_of(tables, models):
    return {name: found_circuit(tables / folder) for name, folder in models.folders.items()}


def rows(tables, models=SMALL):
    found = section_8(tables, models, circuits_of(tables, models))
    return {row.claim.removeprefix("A, B and C: "): row for row in found}


def without_circuit(tables, *names):
    for name in names:
        edit(tables / f"transformer_{name}" / "report.json", lambda report: report.update(discovery={"found": False}))


def test_every_row_says_what_was_measured_and_whether_it_holds(tables):
    found = rows(tables)
    assert found[LOSS].measured == ", ".join(["0.0050 ± 0.0005"] * 3)
    assert (found[LOSS].verdict, found[LOSS].models) == ("holds at smaller scale", "recipe small, seeds 7, 7, 7")
    assert found[HEADS].measured == "2, 2, 2 with at least one directly needed path"
    assert found[HEADS].verdict == "differs"
    assert (found[JOINS].measured[:6], found[JOINS].verdict) == ("3 of 3", "holds at smaller scale")
    assert found[DIFFERENT].verdict == "differs"  # all are alike
    assert (found[MERGED].section, found[MERGED].verdict) == ("8.2 (ours)", "differs")
    assert {row.runs for row in found.values()} == {3}


def test_four_heads_in_each_circuit_are_as_many_as_the_papers(tables):
    paths = ["L0H0 * -> previous", *(f"L{k}H0 query -> pair{k}.second" for k in (1, 2, 3))]
    heads = "heads:\n  L0H0: previous\n" + "".join(f"  L{k}H0: {{query: pair{k}.second}}\n" for k in (1, 2, 3))
    for name in "abc":
        (tables / f"transformer_{name}" / "circuit.yaml").write_text(heads)
        edit(
            tables / f"transformer_{name}" / "report.json",
            lambda report: report.update(paths=[path(one, 0.1, 0.1) for one in paths]),
        )
    assert rows(tables)[HEADS].verdict == "holds at smaller scale"
    edit(tables / "transformer_a" / "report.json", lambda report: report["paths"][3].update(needed="indirectly"))
    assert rows(tables)[HEADS].measured.startswith("3, 4, 4")


def test_one_circuit_with_mergeable_heads_is_enough(tables):
    edit(tables / "transformer_b" / "report.json", lambda report: report["merges"][0].update(loss=0.04))
    assert rows(tables)[MERGED].verdict == "holds at smaller scale"
    without_circuit(tables, "a")
    assert rows(tables)[MERGED].verdict == "holds at smaller scale"


def test_without_a_circuit_nothing_holds_and_what_is_refuted_stays_so(tables):
    without_circuit(tables, "c")
    found = rows(tables)
    unknown = "no circuit found for C (its own loss is 0.0050 ± 0.0005)"
    assert all(row.measured.endswith(unknown) for what, row in found.items() if what != LOSS)
    assert (found[JOINS].measured[:6], found[JOINS].runs, found[JOINS].verdict) == ("2 of 2", 2, "not measured")
    assert found[MERGED].verdict == "not measured"  # C's heads might be merged
    assert found[HEADS].verdict == "differs"  # two heads in A and B


def test_without_any_circuit_nothing_is_measured_but_the_loss(tables):
    found = rows(tables, PAPER)
    assert found.pop(LOSS).verdict == "differs"
    assert {row.verdict for row in found.values()} == {"not measured"}
    assert all(row.measured.startswith("no circuit found for A") for row in found.values())
    assert {(row.runs, row.command) for row in found.values()} == {(0, "-")}


def test_other_seeds_stand_beside_with_the_same_numbers(tables):
    folder = tables / "paper_recipe"
    copy = shutil.copytree(folder / "transformer_a_seed_0", folder / "transformer_a_seed_3")
    edit(copy / "config.json", lambda config: config["made"].update(seed=3))
    write_circuit(copy)
    found = rows(tables, PAPER)
    assert found[LOSS].measured.endswith("; seed 3, beside them: 0.5000 ± 0.0005")
    assert found[HEADS].measured.startswith("seed 3, beside them: 2;")
    assert found[JOINS].measured.startswith("seed 3, beside them: yes;")


@pytest.mark.parametrize(
    ("own", "fixed", "joins", "partial_too"),
    [
        (["L0H0 * -> previous"], [], True, True),
        (["L0H0 pair1.second -> pair1.first", "L0H0 pair2.second -> pair2.first"], [], True, True),
        ([], ["L0H0 pair1.second -> pair1.first", "L0H0 pair2.second -> pair2.first"], True, True),
        (["L0H0 pair1.second -> pair1.first"], ["L0H1 pair2.second -> pair2.first"], True, True),
        (["L0H0 pair1.second -> pair1.first"], [], False, False),  # not pair 2
        ([], ["L0H0 pair1.second -> pair1.first on slot 0, 2", "L0H0 pair2.second -> pair2.first"], False, False),
        (["L0H1 * -> previous"], ["L0H0 pair1.second -> pair1.first on slot 0, 2"], True, False),
        (["L0H0 * -> previous", "L0H1 query -> pair1.first"], [], False, False),
        (["L0H0 pair1.second -> pair2.first", "L0H0 pair2.second -> pair2.first"], [], False, False),
    ],
)
def test_only_a_first_layer_that_joins_every_pair_on_all_slots_joins_the_pairs(tables, own, fixed, joins, partial_too):
    fetch = ["L1H0 query -> pair1.second", "L2H0 query -> pair2.second"]
    write(tables / "transformer_a", [*own, *fetch], fixed)
    circuit = found_circuit(tables / "transformer_a")
    assert (circuit.joins_pairs(), circuit.joins_pairs(partial_too=True)) == (joins, partial_too)


def write(folder, names, fixed=()):
    """Write a circuit with these paths, and its report."""
    heads = {}
    for name in names:
        head, source, _, target = name.split()
        heads.setdefault(head, {})[source] = target
    lines = [f"  {head}: {'previous' if '*' in rows else json.dumps(rows)}\n" for head, rows in sorted(heads.items())]
    (folder / "circuit.yaml").write_text("heads:\n" + "".join(lines))
    found = [path(name, 0.2, 0.4) for name in sorted(names)]
    edit(folder / "report.json", lambda report: report.update(paths=found, flow_check={"fixed_paths": [*fixed]}))


def test_a_path_on_some_slots_does_not_join_the_pairs(tables):
    folder = tables / "transformer_a"
    first = {"pair1.second": "pair1.first", "pair2.second": "pair2.first"}
    write(folder, [*(f"L0H0 {source} -> {target}" for source, target in first.items()), "L1H0 query -> pair2.second"])
    assert found_circuit(folder).joins_pairs()
    text = (folder / "circuit.yaml").read_text()
    some = '{"pair1.second": {"to": "pair1.first", "slot": [0, 2]}, "pair2.second": "pair2.first"}'
    (folder / "circuit.yaml").write_text(text.replace(json.dumps(first), some))
    assert not found_circuit(folder).joins_pairs()


def test_the_fewest_heads_are_those_of_a_transformer_that_was_made(tables):
    assert fewest_heads(tables).verdict == "holds"
    edit(tables / "construction.json", lambda made: made["loss"].update(mean=0.02))
    assert fewest_heads(tables).verdict == "differs"
    edit(tables / "construction.json", lambda made: made.update(heads=4))
    assert fewest_heads(tables).verdict == "not measured"
    (tables / "construction.json").write_text("[]")
    with pytest.raises(BadInput, match=r"construction.json: not the output of `theory construct --json`"):
        fewest_heads(tables)
