from collections.abc import Sequence
from pathlib import Path

import pytest

from circuits import BadInput
from retrieval_interp.figure4.figure4 import AT_ONCE, IN_ORDER, OTHERWISE, asked_alone, figure4_sentences, order, table
from retrieval_interp.figure4.figure4_page import write_figure4
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.sweep.store import Result
from tests.browser import opened


def result(name: str, seed: int, losses: Sequence[float], fell: Sequence[int | None]) -> Result:
    """What a run could have come to."""
    parts = preset(name).task.loss_components
    return Result(name, seed, dict(zip(parts, losses, strict=True)), dict(zip(parts, fell, strict=True)), 1.0, "cpu")


@pytest.fixture
def by_hand() -> list[Result]:
    """Two layers learn x1, three learn all but for one seed, which has x2 before x1; alone x3 is learned once."""
    return [
        result("laptop_ic_2", 0, (0.1, 0.8, 0.8), (100, None, None)),
        result("laptop_ic_2", 1, (0.9, 0.8, 0.8), (None, None, None)),
        result("laptop_ic_3", 0, (0.1, 0.1, 0.1), (100, 200, 300)),
        result("laptop_ic_3", 1, (0.1, 0.1, 0.1), (200, 100, 300)),
        result("laptop_nonic_3", 0, (0.8,), (None,)),
        result("laptop_nonic_3", 1, (0.6,), (None,)),
    ]


def test_the_statements_of_section_7_are_counted(by_hand: list[Result]) -> None:
    alone, told, depth = figure4_sentences(by_hand)
    assert "is above 0.7 in 1 of 2 runs (lowest loss 0.600;" in alone
    assert "fell below 0.5 in 2 runs" in told
    assert "in the order x1, x2, ... in 1 runs" in told
    assert told.endswith("within the same 20 steps in 0, and in another order in 1.")
    assert depth.endswith("x1 3, 2 (2); x2 3, 3 (3); x3 3, 3 (3).")  # one of two seeds is not most


@pytest.mark.parametrize(
    ("fell", "expected"),
    [
        ((100, 200, 300), IN_ORDER),
        ((100, 200, None), IN_ORDER),
        ((100, 200, 200), AT_ONCE),
        ((200, 100, 300), OTHERWISE),
        ((None, 100, 300), OTHERWISE),
        ((200, 200, 100), OTHERWISE),
        ((100, None, None), None),
        ((None, None, None), None),
    ],
)
def test_symbols_fall_in_order_at_once_or_otherwise(fell: tuple[int | None, ...], expected: str | None) -> None:
    assert order(dict(zip(("x1", "x2", "x3"), fell, strict=True))) == expected


def test_a_single_hop_is_not_the_last_symbol_alone_nor_is_one_that_grows() -> None:
    runs = [result("induction", 0, (0.9,), (None,)), result("laptop_growing", 0, (0.9,), (None,))]
    assert asked_alone(runs) == []


def test_where_all_are_of_one_depth_it_is_said_what_each_preset_learned() -> None:
    runs = [
        result("laptop_growing", 0, (0.1,), (100,)),
        result("laptop_growing", 1, (0.8,), (None,)),
        result("laptop_without_x1", 0, (0.1, 0.6), (100, None)),
    ]
    grown, without = figure4_sentences(runs)
    assert grown.startswith("D = 3, asked for x3, D growing, 4 layers: ")
    assert grown.endswith("below 0.5 for x3 in 1 of 2 runs.")
    assert without.startswith("D = 3, asked for x2, x3, 4 layers: ")
    assert without.endswith("below 0.5 for x2 in 1 of 1, x3 in 0 of 1 runs.")


def test_the_table_has_a_row_for_every_preset_and_symbol(by_hand: list[Result]) -> None:
    rows = table(by_hand).set_index(["preset", "symbol"])
    assert len(rows) == 4 + 4 + 2
    first = rows.loc[("laptop_ic_2", "x1")]
    assert (first["layers"], first["takes"], first["runs"], first["learned"], first["fell"]) == (2, 2, 2, 1, 100)
    assert (first["loss"], first["low"], first["high"]) == pytest.approx((0.5, 0.1, 0.9))
    assert rows.loc[("laptop_nonic_3", "all"), "loss"] == pytest.approx(0.7)


@pytest.mark.slow
def test_the_page_shows_every_run_offline(by_hand: list[Result], tmp_path: Path) -> None:
    with opened(write_figure4(by_hand, tmp_path, "by hand")) as (page, complaints):
        names = page.locator("#losses .legendtext").all_text_contents()
        assert names == ["D = 3, asked for x1 ... x3", "D = 3, asked for x3"]
        assert page.locator("#losses .points path").count() == 6
        assert page.locator("#components .points path").count() == 12
        assert page.locator("#figure4-table tr").count() == 1 + 10
        assert complaints == []
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 2 + 14
    assert read_runs(tmp_path / "runs.csv") == by_hand


TITLES = "preset,seed,seconds,device,symbol,loss,fell\n"
LACKING = TITLES + "tiny,0,1,cpu,x1,0.1,inf\n"


@pytest.mark.parametrize(
    "text", ["letters", "preset,seed\ntiny,0\n", "preset,seed,seconds,device,symbol,loss,fell\n", LACKING]
)
def test_what_is_no_table_of_runs_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(
        BadInput, match=r"runs\.csv(: the table has no run|, row [01]: not a run; expected the columns preset)"
    ):
        read_runs(tmp_path / "runs.csv")
