import shutil

from retrieval_interp.claims.ablated import appendix_e
from retrieval_interp.claims.tables import PAPER, SMALL
from tests.retrieval_interp.claims.conftest import edit, write_circuit
from tests.retrieval_interp.claims.test_found_circuits import circuits_of, without_circuit

WHAT = ("all", "above", "first")


def rows(tables, models=SMALL):
    """The rows to the letter, and those for the circuits as they were found."""
    found = appendix_e(tables, models, circuits_of(tables, models))
    return dict(zip(WHAT, found[:3], strict=True)), dict(zip(WHAT, found[3:], strict=True))


def test_the_paper_is_judged_by_its_own_mechanisms_and_ours_stand_beside(tables):
    letter, ours = rows(tables)
    assert {row.section for row in letter.values()} == {"E"}
    assert {row.section for row in ours.values()} == {"E (ours)"}
    assert (letter["all"].measured, ours["all"].measured) == (", ".join(["0.0400"] * 4), ", ".join(["0.0300"] * 4))
    assert letter["above"].measured == "0.500 (row uniform; 5 of 5 losses in the paper's range)"
    assert ours["above"].measured.startswith("0.200 to 0.400 (row uniform or identity; 10 of 10 losses")
    assert letter["first"].measured == "0.060"
    assert {row.verdict for row in [*letter.values(), ours["all"], ours["above"]]} == {"holds at smaller scale"}
    assert (ours["first"].measured, ours["first"].verdict) == ("0.070 to 0.200", "differs")  # D's is 0.2


def test_a_circuit_that_the_letter_rejects_says_nothing_about_single_paths(tables):
    edit(tables / "transformer_b" / "report.json", lambda report: report["paper"]["loss"].update(mean=0.3))
    letter, ours = rows(tables)
    assert letter["all"].verdict == "differs"
    assert (letter["above"].runs, letter["above"].verdict) == (3, "not measured")
    assert "not tested for B, whose loss is not below 0.05" in letter["above"].measured
    assert ours["above"].verdict == "holds at smaller scale"


def test_a_cost_above_the_papers_range_differs_as_one_below(tables):
    for cost, verdict in ((0.9, "differs"), (0.16, "differs"), (0.89, "holds at smaller scale")):
        edit(
            tables / "transformer_b" / "report.json",
            lambda report, cost=cost: report["paths"][1]["losses"].update(identity=cost),
        )
        assert rows(tables)[1]["above"].verdict == verdict


def test_a_loss_at_the_threshold_differs(tables):
    edit(
        tables / "transformer_b" / "report.json", lambda report: report["loss"]["details"]["combined"].update(mean=0.05)
    )
    assert rows(tables)[1]["all"].verdict == "differs"


def test_without_a_circuit_nothing_holds(tables):
    without_circuit(tables, "c")
    letter, ours = rows(tables)
    assert {row.verdict for row in letter.values()} == {"not measured"}
    assert ours["first"].verdict == "differs"  # D's
    nothing, _ = rows(tables, PAPER)
    assert {(row.verdict, row.runs, row.command) for row in nothing.values()} == {("not measured", 0, "-")}
    assert nothing["first"].measured.startswith("no circuit found for A (its own loss is 0.5000 ± 0.0005), B")


def test_other_seeds_stand_beside_and_decide_nothing(tables):
    folder = tables / "paper_recipe"
    for seed in (3, 4):
        copy = shutil.copytree(folder / "transformer_a_seed_0", folder / f"transformer_a_seed_{seed}")
        edit(copy / "config.json", lambda config, seed=seed: config["made"].update(seed=seed))
        write_circuit(copy)
    edit(folder / "transformer_a_seed_4" / "report.json", lambda report: report["paper"]["loss"].update(mean=0.3))
    letter, ours = rows(tables, PAPER)
    assert letter["all"].measured.startswith("A seed 3, beside them: 0.0400; A seed 4, beside them: 0.3000; no circuit")
    assert "A seed 3, beside them: 0.060; A seed 4, beside them: not tested" in letter["first"].measured
    assert "A seed 4, beside them: 0.070" in ours["first"].measured
    assert {(row.verdict, row.runs) for row in [*letter.values(), *ours.values()]} == {("not measured", 0)}
