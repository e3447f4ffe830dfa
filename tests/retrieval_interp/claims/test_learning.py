import shutil

import pytest

from circuits import BadInput
from retrieval_interp.claims.learning import section_7
from retrieval_interp.claims.tables import FIGURE4
from tests.retrieval_interp.claims.conftest import edit, write_log

PAPERS, LAPTOP = FIGURE4


def rows(tables):
    """The rows of figure 4 at the paper's size, at the laptop's, and of the transformers of both recipes."""
    every = section_7(tables)
    kinds = ("without", "later", "partial")
    paper, laptop = (dict(zip(kinds, every[first : first + 3], strict=True)) for first in (0, 3))
    return paper, laptop, {"paper": every[6], "small": every[7]}


def change(table, *pairs):
    text = table.read_text()
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    table.write_text(text)


def test_the_statements_of_section_7_are_counted_in_the_runs_of_the_sweep(tables):
    paper, laptop, trained = rows(tables)
    assert paper["without"].measured == "3 of 3 [0.44, 1.00] runs (lowest loss 0.750)"
    assert paper["without"].models == "D = 3; 2, 4, 8 layers of 8 heads, recipe paper, 10000 steps, seed 0"
    assert laptop["without"].models == "D = 3; 1 to 6 layers of 4 heads, recipe small, 4000 steps, seeds 0 to 2"
    # x1 fails with one layer of eight: 0.1 + 0.65 / 8; x2 with two, and so on.
    assert "x1, x2, x3, x4, x5: 0.181, 0.263, 0.344, 0.425, 0.506;" in paper["later"].measured
    assert paper["later"].measured.endswith(": 2, 3, 4, 5, 6")
    assert (paper["partial"].runs, laptop["partial"].runs) == (6, 12)  # of those with two layers or fewer, none
    assert paper["partial"].measured == "6 of 6 [0.61, 1.00] runs in which two or more symbols fell"
    assert trained["small"].measured == "4 of 4 [0.51, 1.00] runs in which two or more symbols fell"
    assert trained["small"].models == "recipe small, A to C: seeds 7, 7, 7; D: seed 7"
    assert trained["paper"].models == "recipe paper, A to C: seeds 0, 1, 2; D: seed 0"
    every = [*paper.values(), *laptop.values(), *trained.values()]
    assert {row.verdict for row in every} == {"holds at smaller scale"}  # fewer than 64 runs


def test_as_many_runs_as_the_papers_hold_without_a_reserve(tables, monkeypatch):
    monkeypatch.setattr("retrieval_interp.claims.learning.RUNS", 3)
    paper, laptop, trained = rows(tables)
    assert {row.verdict for row in paper.values()} == {"holds"}
    assert {row.verdict for row in laptop.values()} == {"holds at smaller scale"}  # smaller models
    assert [trained[recipe].verdict for recipe in ("paper", "small")] == ["holds", "holds at smaller scale"]


def test_one_run_that_says_otherwise_turns_the_verdict(tables):
    change(tables / LAPTOP, ("laptop_nonic_4,1,x3,0.75", "laptop_nonic_4,1,x3,0.65"))
    change(tables / LAPTOP, ("laptop_ic_4,0,x2,0.1,200", "laptop_ic_4,0,x2,0.1,400"))
    change(tables / LAPTOP, *((f"laptop_ic_2,{seed},x1,0.1", f"laptop_ic_2,{seed},x1,0.9") for seed in range(3)))
    change(tables / LAPTOP, *((f"laptop_ic_3,{seed},x1,0.1", f"laptop_ic_3,{seed},x1,0.9") for seed in range(3)))
    _, laptop, _ = rows(tables)
    assert laptop["later"].measured.endswith(": 4, 3, 4")
    assert {row.verdict for row in laptop.values()} == {"differs"}


def test_later_symbols_need_more_layers_only_if_the_last_needs_more_than_the_first(tables):
    table = tables / LAPTOP
    for symbol, layers in (("x2", 2), ("x3", 2), ("x3", 3)):  # a little worse, and learned with as few layers
        change(
            table,
            *((f"ic_{layers},{seed},{symbol},0.75,", f"ic_{layers},{seed},{symbol},0.3,900") for seed in range(3)),
        )
    _, laptop, _ = rows(tables)
    assert laptop["later"].measured.endswith(": 2, 2, 2")
    assert laptop["later"].verdict == "differs"


def test_later_symbols_need_more_layers_only_if_the_mean_losses_rise(tables):
    change(tables / LAPTOP, *((f"ic_6,{seed},x1,0.1", f"ic_6,{seed},x1,0.75") for seed in range(3)))
    _, laptop, _ = rows(tables)
    assert "x1, x2, x3: 0.317, 0.317, 0.425;" in laptop["later"].measured
    assert laptop["later"].verdict == "differs"


def test_a_symbol_that_no_depth_learns_does_not_need_more_layers(tables):
    change(tables / PAPERS, *((f"ic_{layers},0,x5,0.1,500", f"ic_{layers},0,x5,0.9,") for layers in (6, 7, 8)))
    paper, _, _ = rows(tables)
    assert paper["later"].measured.endswith(": 2, 3, 4, 5, none")
    assert paper["later"].verdict == "differs"


def test_a_sweep_in_which_no_run_learned_two_symbols_shows_no_order(tables):
    change(tables / PAPERS, *((f",x{k},0.1,{100 * k},", f",x{k},0.75,,") for k in (2, 3, 4, 5)))
    paper, _, _ = rows(tables)
    assert (paper["partial"].measured[:6], paper["partial"].runs) == ("0 of 0", 0)
    assert paper["partial"].verdict == "not measured"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("figure4_ic_8,", "figure4_ic_9,", "unknown preset 'figure4_ic_9'"),
        (
            "figure4_ic_8,0",
            "figure4_ic_8,1",
            r"lacks the run figure4_ic_8, seed 0; make it with: retrieval-interp study",
        ),
    ],
)
def test_a_sweep_with_other_runs_than_its_plan_is_refused(tables, before, after, message):
    change(tables / PAPERS, (before, after))
    with pytest.raises(BadInput, match=f"runs.csv: .*{message}"):
        section_7(tables)


def test_a_sweep_with_runs_beside_its_plan_is_refused(tables):
    table = tables / PAPERS
    extra = [line.replace("nonic_8,0", "nonic_8,1") for line in table.read_text().splitlines() if "nonic_8" in line]
    table.write_text("\n".join([table.read_text().strip(), *extra]) + "\n")
    with pytest.raises(BadInput, match=r"runs.csv: has the run figure4_nonic_8, seed 1, which is not in the plan"):
        section_7(tables)


def test_a_run_that_is_twice_in_a_table_is_refused(tables):
    table = tables / PAPERS
    extra = [line for line in table.read_text().splitlines() if "nonic_8" in line]
    table.write_text("\n".join([table.read_text().strip(), *extra]) + "\n")
    with pytest.raises(BadInput, match=r"runs.csv, row \d+: .*given twice"):
        section_7(tables)


def test_partial_losses_out_of_order_are_counted(tables):
    write_log(tables / "transformer_c", [100, 200, 300, 400], {"x1": 300, "x2": 200})
    row = rows(tables)[2]["small"]
    assert row.measured.startswith("3 of 4 [0.30, 0.95] runs")
    assert row.verdict == "differs"


def test_partial_losses_that_fall_within_the_same_logged_steps_are_counted_apart(tables):
    write_log(tables / "transformer_c", [100, 200, 300, 400], {"x1": 200, "x2": 200})
    row = rows(tables)[2]["small"]
    assert row.measured.startswith("3 of 4")
    assert "in 1 runs two fell" in row.measured
    assert row.verdict == "holds at smaller scale"


def test_runs_in_which_fewer_than_two_partial_losses_fell_show_no_order(tables):
    write_log(tables / "transformer_c", [100, 200, 300, 400], {"x1": 200, "x2": 500})
    row = rows(tables)[2]["small"]
    assert (row.measured[:6], row.runs) == ("3 of 3", 3)


def test_other_seeds_count_too(tables):
    folder = tables / "paper_recipe"
    for letter, seed in (("a", 3), ("d", 1)):
        copy = shutil.copytree(folder / f"transformer_{letter}_seed_0", folder / f"transformer_{letter}_seed_{seed}")
        edit(copy / "config.json", lambda config, seed=seed: config["made"].update(seed=seed))
    shutil.copytree(folder / "transformer_d_seed_0", folder / "transformer_d_seed_0_clipping")  # another recipe
    row = rows(tables)[2]["paper"]
    assert (row.runs, row.models) == (6, "recipe paper, A to C: seeds 0, 1, 2, 3; D: seeds 0, 1")
