import shutil
from dataclasses import asdict

import pytest

from retrieval_interp.claims.departures import departures
from retrieval_interp.claims.tables import PAPER, SMALL
from retrieval_interp.models.presets import LITERAL, preset
from tests.retrieval_interp.claims.conftest import edit, write_config

CLIPPING = "D, one seed: clipping alone decides when x1 is learned"
DECAY = CLIPPING.replace("clipping", "decay")


def learns_x1_at(folder, when, **changes):
    """Write a run of D in which x1 falls at a step, or never."""
    folder.mkdir(exist_ok=True)
    write_config(folder, 0, asdict(preset("paper_d", **{**LITERAL, **changes}).recipe), of="paper_d")
    losses = {10: 1.0, 6400: 1.0} if when is None else {when - 1: 1.0, when + 1: 0.0, 6400: 0.0}
    lines = [f'{{"step": {step}, "loss": {x1}, "components": {{"x1": {x1}}}}}' for step, x1 in losses.items()]
    (folder / "log.jsonl").write_text("\n".join(lines))


def rows(tables):
    return {row.claim: row for row in departures(tables)}


@pytest.fixture
def paper(tables):
    """The run of the paper's recipe learns x1 at step 400, that of recipe small at step 100."""
    learns_x1_at(tables / PAPER.folders["D"], 400)
    learns_x1_at(tables / SMALL.folders["D"], 100)
    return tables / PAPER.folders["D"]


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
def test_a_departure_decides_if_alone_it_goes_half_of_the_way_in_log_steps(tables, paper, step, verdict, way):
    learns_x1_at(paper.with_name(f"{paper.name}_clipping"), step, max_grad_norm=1.0)
    found = rows(tables)
    decided = found.pop(CLIPPING)
    assert decided.verdict == verdict
    assert f" {way} of the way" in decided.measured
    assert {row.verdict for row in found.values()} == {"not measured"}  # two others of D, four of A
    assert len(found) == 6


@pytest.mark.parametrize(("step", "said"), [(3839, True), (3841, False)])
def test_a_decay_that_begins_later_cannot_decide_and_the_row_says_so(tables, paper, step, said):
    learns_x1_at(paper.with_name(f"{paper.name}_decay"), step, decay=0.4)
    row = rows(tables)[DECAY]
    assert ("cannot decide" in row.measured) == said
    assert ("of the way" in row.measured) != said


@pytest.mark.parametrize(
    ("once_more", "verdict"),
    [(199, "not measured"), (202, "holds"), (798, "holds"), (802, "not measured"), (None, "not measured")],
)
def test_a_departure_is_undecided_if_the_same_recipe_once_more_is_off_by_half_of_the_way(
    tables, paper, once_more, verdict
):
    learns_x1_at(paper.with_name(f"{paper.name}_clipping"), 100, max_grad_norm=1.0)
    learns_x1_at(paper.with_name(f"{paper.name}_decay"), once_more, decay=0.4)
    row = rows(tables)[CLIPPING]
    assert row.verdict == verdict
    assert ("decides nothing" in row.measured) == (verdict == "not measured")
    assert ("has not fallen by step 3840, at least" in row.measured) == (once_more is None)


@pytest.mark.parametrize(("before", "once_more"), [(400, 400), (4000, 4100)])
def test_the_same_recipe_once_more_is_not_named_where_it_shows_nothing(tables, paper, before, once_more):
    learns_x1_at(paper, before)
    learns_x1_at(paper.with_name(f"{paper.name}_clipping"), 100, max_grad_norm=1.0)
    learns_x1_at(paper.with_name(f"{paper.name}_decay"), once_more, decay=0.4)
    assert rows(tables)[CLIPPING].verdict == "holds"
    assert "once more" not in rows(tables)[CLIPPING].measured


def test_a_decay_that_begins_later_decides_nothing_though_x1_falls_at_another_step(tables, paper):
    learns_x1_at(paper.with_name(f"{paper.name}_decay"), 100, decay=0.4)
    assert rows(tables)[DECAY].verdict == "differs"


@pytest.mark.parametrize(
    "change",
    [
        {"max_grad_norm": None},
        {"max_grad_norm": 1.0, "decay": 0.4},
        {"max_grad_norm": 1.0, "initializer_range": None},
        {"max_grad_norm": 1.0, "steps": 6399},
        {"max_grad_norm": 1.0, "steps": 6420},
    ],
)
def test_a_run_that_is_unfinished_or_differs_in_more_than_the_departure_decides_nothing(tables, paper, change):
    learns_x1_at(paper.with_name(f"{paper.name}_clipping"), 100, **change)
    assert rows(tables)[CLIPPING].verdict == "not measured"


@pytest.mark.parametrize("made", [{"seed": 1}, {"preset": "tiny"}])
def test_a_run_of_another_seed_or_preset_decides_nothing(tables, paper, made):
    run = paper.with_name(f"{paper.name}_clipping")
    learns_x1_at(run, 100, max_grad_norm=1.0)
    assert rows(tables)[CLIPPING].verdict == "holds"
    edit(run / "config.json", lambda config: config["made"].update(made))
    assert rows(tables)[CLIPPING].verdict == "not measured"
    shutil.rmtree(run)
    assert rows(tables)[CLIPPING].verdict == "not measured"
