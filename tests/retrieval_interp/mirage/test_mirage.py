import json
import math

import pytest

from retrieval_interp import RetrievalTask
from retrieval_interp.mirage.answer_metrics import METRICS, SQUARED, WEIGHT
from retrieval_interp.mirage.depth_ways import (
    NOTHING,
    Way,
    depth_sentences,
    depth_table,
    depth_verdict,
    kind,
    ways_of_runs,
    ways_of_sweep,
)
from retrieval_interp.mirage.metric_curves import RunCurves, emerged_paths, metric_curves
from retrieval_interp.mirage.mirage import (
    A_MIRAGE,
    ALL,
    EXACT,
    GRADUAL_INSIDE,
    JUMP_INSIDE,
    LOG_ODDS,
    NOT_A_MIRAGE,
    UNDECIDED,
    Risen,
    cases,
    compared_table,
    counts_table,
    inside,
    rises,
    sentences,
    verdict,
)
from retrieval_interp.mirage.mirage_page import write_mirage
from retrieval_interp.mirage.rises import GRADUAL, JUMPS, Rise
from retrieval_interp.models import presets
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.sweep.store import Result
from retrieval_interp.training import training
from tests.browser import opened
from tests.command import run as command

TASK = RetrievalTask(n_steps=2)
STEPS = range(20, 2001, 20)
MICRO = Preset(
    RetrievalTask(n_steps=2, n_chains=2),
    Architecture(n_layers=2, n_heads=1, d_model=16, d_head=16),
    Recipe(steps=20, batch=8, training_examples=64, checkpoint_every=10, precision="float32"),
)


def learning(error, attention=None, name="planted", n_layers=4):
    """A run whose answers have normal errors of this variance by step, as the theory of each metric says.

    An answer that is a share s of the way from a guess to the right symbol has an error of (1 - s)^2 (1 - 1/N).
    """
    from scipy.stats import chi2

    def within(tolerance, variance):
        return float(chi2.cdf(TASK.n_dims * tolerance**2 / variance, TASK.n_dims))

    output = {}
    for symbol in TASK.loss_components:
        output[symbol, SQUARED] = {step: error(step) for step in STEPS}
        output[symbol, WEIGHT] = {step: 1 - math.sqrt(error(step) / 0.75) for step in STEPS}
        output[symbol, EXACT] = {step: within(0.25, error(step)) for step in STEPS}
    curves = {"L0H0 pair1.second -> pair1.first": {step: attention(step) for step in STEPS}} if attention else {}
    recipe = {"architecture": {"n_heads": 1, "d_model": 64}, "recipe": {"steps": 2000}}
    return RunCurves(name, TASK, n_layers, 0, recipe, output, {}, curves, "a formula")


def power_law(step):
    """An error that falls as a power of the step, in every metric over a long time."""
    return 0.75 / (1 + (step / 500) ** 3)


def steep(step):
    return 0.75 if step < 1000 else 0.75 * math.exp(-(step - 1000) / 20)


def late(step):
    """A squared error that falls smoothly all the time, and is within a tolerance only towards the end."""
    return 0.75 * (1 - 0.999 * (step / 2000) ** 2)


def sigmoid(step, width):
    return 0.05 + 0.94 / (1 + math.exp(-(step - 1000) / width))


def of(curve, n=3, **more):
    runs = [learning(curve, name=f"seed {seed}", **more) for seed in range(n)]
    return runs, [risen for run in runs for risen in rises(run)]


def test_a_smooth_curve_that_jumps_in_exact_match_alone_is_a_mirage():
    _, found = of(late)
    kinds = {one.metric: one.rise.kind for one in found if (one.run, one.of) == ("seed 0", "x1")}
    assert kinds == {SQUARED: GRADUAL, WEIGHT: GRADUAL, EXACT: JUMPS}
    assert verdict(found) == A_MIRAGE


def test_a_steep_curve_jumps_in_every_metric():
    runs, found = of(steep)
    assert {one.rise.kind for one in found} == {JUMPS}
    assert verdict(found) == NOT_A_MIRAGE
    told = sentences(runs, found)
    assert told[0].startswith(
        "Over training: not a mirage. Exact match within 0.25 jumps in 6 cases; of these, the squared"
    )
    assert "in 6, the weight jumps in 6. Split by slot: Exact match within 0.25 jumps in no case" in told[0]
    assert len(told) == 1 + 1 + 3


def test_the_length_of_a_rise_is_compared_with_that_of_the_squared_error():
    """By hand: the squared error rises from step 900 to 1,100; exact match within 0.25 in half of that."""
    curves = {SQUARED: (900.0, 1100.0), EXACT: (950.0, 1050.0)}
    found = [
        Risen("run", "x1", slot, metric, Rise(JUMPS, 1.0, *ends), None)
        for metric, ends in curves.items()
        for slot in (ALL, "0")
    ]
    rows = compared_table(found).query("pairs > 0").to_dict("records")
    assert [(row["metric"], row["slots"], row["shorter"], row["ratio"]) for row in rows] == [
        (EXACT, "together", 1, 0.5),
        (EXACT, "each", 1, 0.5),
    ]
    assert cases(found) == [("run", "x1", ALL)]
    assert cases(found, slots=True) == [("run", "x1", "0")]


def test_a_curve_that_is_gradual_in_every_metric_is_no_case():
    _, found = of(power_law)
    assert {one.rise.kind for one in found} == {GRADUAL}
    assert verdict(found) == UNDECIDED


def test_two_runs_are_too_few_cases():
    _, found = of(steep, n=2)
    assert verdict(found) == UNDECIDED


def test_half_of_the_cases_are_undecided():
    found = [risen for n, error in enumerate((steep, late) * 2) for risen in rises(learning(error, name=f"run {n}"))]
    assert verdict(found) == UNDECIDED


def test_attention_that_jumps_can_be_gradual_in_its_log_odds():
    """Scores that rise steadily: softmax alone makes the jump."""
    runs, found = of(steep, n=1, attention=lambda step: sigmoid(step, 100))
    by_metric = {one.metric: one for one in found}
    assert by_metric["attention"].rise.kind == GRADUAL
    odds = by_metric[LOG_ODDS]
    assert odds.rise.kind == GRADUAL
    assert inside(found, "seed 0") == GRADUAL_INSIDE
    assert odds.foretold == pytest.approx(1.0, abs=0.05)  # even odds at step 1000, where the output begins
    assert "(gradual inside)" in sentences(runs, found)[-1]


def test_attention_that_jumps_in_its_log_odds_too_jumps_inside():
    _, found = of(steep, n=1, attention=lambda step: 0.1 if step < 1000 else 0.9)
    assert inside(found, "seed 0") == JUMP_INSIDE


def test_only_paths_that_have_emerged_at_the_end_are_followed_on_their_slots():
    import torch

    examples = TASK.examples(2, 0)
    roles = examples.roles.names
    last = torch.zeros(2, 1, len(roles), len(roles), 4)
    query, second = roles.index("query"), roles.index("pair1.second")
    last[1, 0, query, second] = torch.tensor([1.0, 0.8, 0.0, 0.0])
    last[1, 0, query, query] = 1.0  # to itself
    found = emerged_paths({10: last / 2, 20: last}, examples)
    assert found == {"L1H0 query -> pair1.second [slot 0, 1]": {10: pytest.approx(0.45), 20: pytest.approx(0.9)}}


def test_the_counts_are_those_of_the_rises():
    _, found = of(steep)
    table = counts_table(found).set_index("metric")
    assert table.loc[SQUARED, "jumps"] == 6
    assert 0 < table.loc[SQUARED, "low"] <= table.loc[SQUARED, "share"] <= table.loc[SQUARED, "high"] < 0.25


def ways(metric, *gone):
    return [Way("g", 1 + place // 2, f"run {place}", "x1", metric, one) for place, one in enumerate(gone)]


def test_a_metric_jumps_over_depth_if_few_models_are_in_between():
    assert kind(ways(SQUARED, 0.0, 0.05, 0.0, 0.99, 1.0)) == JUMPS
    assert kind(ways(SQUARED, 0.0, 0.2, 0.5, 0.99, 1.0)) == GRADUAL
    assert kind(ways(SQUARED, 0.95, 0.99, 1.0)) == NOTHING


def test_over_depth_a_metric_in_between_makes_the_jump_of_exact_match_a_mirage():
    jump, between = (0.0, 0.0, 1.0, 1.0), (0.0, 0.4, 0.6, 1.0)
    exact = ways(EXACT, *jump)
    assert depth_verdict([*exact, *ways(SQUARED, *jump), *ways(WEIGHT, *jump)], "g") == NOT_A_MIRAGE
    assert depth_verdict([*exact, *ways(SQUARED, *jump), *ways(WEIGHT, *between)], "g") == A_MIRAGE
    assert depth_verdict([*exact, *ways(SQUARED, *jump)], "g") == UNDECIDED
    assert depth_verdict([*ways(EXACT, *between), *ways(SQUARED, *jump), *ways(WEIGHT, *jump)], "g") == UNDECIDED


def test_the_table_over_depth_has_medians_and_what_a_layer_brings():
    rows = depth_table(ways(SQUARED, 0.0, 0.2, 0.8, 1.0)).to_dict("records")
    assert [(row["layers"], row["median"]) for row in rows] == [(1, pytest.approx(0.1)), (2, pytest.approx(0.9))]
    assert rows[1]["brought"] == pytest.approx(0.8)


def test_runs_of_one_recipe_are_compared_over_depth_at_their_last_step():
    runs = [learning(steep, name="deep"), learning(lambda step: 0.75, name="flat", n_layers=2)]
    found = {(way.run, way.metric): way.gone for way in ways_of_runs(runs) if way.of == "x1"}
    assert found["deep", SQUARED] == pytest.approx(1.0)
    assert found["flat", SQUARED] == pytest.approx(0.0)
    assert ways_of_runs(runs[:1]) == []


def test_of_a_sweep_the_runs_with_the_implicit_curriculum_count():
    results = [Result("laptop_ic_2", 0, {"x1": 0.75, "x2": 0.0}, {}, 1.0, "cpu")]
    results.append(Result("laptop_nonic_2", 0, {"x3": 0.75}, {}, 1.0, "cpu"))
    assert [(way.of, way.n_layers, way.gone) for way in ways_of_sweep(results)] == [("x1", 2, 0.0), ("x2", 2, 1.0)]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Two runs of one recipe that differ in depth, with two checkpoints each."""
    for n_layers in (1, 2):
        monkeypatch.setitem(presets.PRESETS, "micro", MICRO.changed(n_layers=n_layers))
        training.start_run(tmp_path / f"micro_{n_layers}", "micro")
        training.train_run(tmp_path / f"micro_{n_layers}", "cpu", compiled=False)
    return [tmp_path / "micro_1", tmp_path / "micro_2"]


def test_a_run_is_measured_at_each_checkpoint_by_symbol_and_slot(trained):
    told = []
    found = metric_curves(trained[1], "micro", 64, 0, told.append)
    assert (found.n_layers, found.source, told) == (2, "2 checkpoints, 64 fresh examples", [0.5, 1.0])
    assert set(found.output["x1", SQUARED]) == {10, 20}
    assert ("chain", EXACT) in found.output
    assert ("chain", SQUARED) not in found.output
    slots = [found.by_slot["x2", SQUARED, slot][20] for slot in (0, 1)]
    assert sum(slots) / 2 == pytest.approx(found.output["x2", SQUARED][20], rel=0.2)
    assert set(METRICS) == {metric for of, metric in found.output if of == "x1"}


def test_without_checkpoints_the_log_and_the_table_are_read(tmp_path, trained):
    (tmp_path / "stored").mkdir()
    for name in ("config.json", "log.jsonl"):
        (tmp_path / "stored" / name).write_text((trained[1] / name).read_text())
    table = "step,L0H0 query -> pair1.second,L0H0 query -> query\n10,0.1,0.9\n20,0.9,0.9\n"
    (tmp_path / "stored" / "attention.csv").write_text(table)
    found = metric_curves(tmp_path / "stored", "stored", 64, 0, lambda share: None)
    assert {metric for _, metric in found.output} == {SQUARED}
    assert found.attention == {"L0H0 query -> pair1.second": {10: 0.1, 20: 0.9}}


@pytest.mark.slow
def test_the_command_prints_one_document_and_writes_its_files(tmp_path, capsys, trained):
    table = "preset,seed,symbol,loss,fell,seconds,device\n"
    table += "".join(f"laptop_ic_{n},0,x{k},{0.75 * (2 - n)},,1.0,cpu\n" for n in (1, 2) for k in (1, 2, 3))
    (tmp_path / "runs.csv").write_text(table)
    asked = ["study", "mirage", *trained, "--sweep", tmp_path / "runs.csv", "--examples", 16, "--out", tmp_path / "new"]
    code, out, _ = command(capsys, *asked, "--json")
    assert code == 1  # two runs of 20 steps decide nothing
    document = json.loads(out)
    assert document["verdicts"]["training"] == UNDECIDED
    assert len(document["verdicts"]["depth"]) == 2
    assert [run["layers"] for run in document["runs"]] == [1, 2]
    assert document["command"].startswith("retrieval-interp study mirage ")
    first = (tmp_path / "new" / "curves.csv").read_text().splitlines()
    assert first[0] == f"# {document['command']}"
    assert len(first) == 2 + 4


@pytest.mark.slow
def test_the_page_shows_both_figures_without_a_network(tmp_path):
    runs, found = of(steep, attention=lambda step: sigmoid(step, 100))
    runs = [*runs, learning(power_law, name="shallow <b>", n_layers=2)]
    depth = ways_of_runs(runs)
    page_path = write_mirage(runs, found, depth, tmp_path, "retrieval-interp study mirage")
    with opened(page_path) as (page, complaints):
        assert page.locator("#sentences li").count() == len(sentences(runs, found)) + len(depth_sentences(depth))
        assert page.locator("#training .scatterlayer .trace").count() == 4 * 2 * 3 + 3
        assert page.locator("#depth .main-svg").count() > 0
        assert page.locator("#counts-table tr").count() == 1 + 5
        assert page.locator("#compared-table tr").count() == 1 + 2 * 5
        assert page.locator("#depth-table tr").count() == 1 + 3
        assert complaints == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere",), "nowhere: no such model directory"),
        (("conditional",), "conditional: expected a model of the retrieval problem"),
        (("induction", "induction"), "induction: two runs have this name"),
        (("induction", "--sweep", "nothing.csv"), "nothing.csv: no such file"),
        (("induction", "--examples", 0), "0 examples; expected at least 1"),
    ],
)
def test_bad_input_is_one_line_that_names_it(tmp_path, capsys, arguments, expected):
    code, out, errors = command(capsys, "study", "mirage", *arguments, "--out", tmp_path / "new")
    assert (code, out) == (2, "")
    assert expected in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_run_without_checkpoints_table_or_weights_is_named(tmp_path, capsys, trained):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text((trained[0] / "config.json").read_text())
    code, _, errors = command(capsys, "study", "mirage", tmp_path / "empty", "--out", tmp_path / "new")
    assert code == 2
    assert "empty: expected a run with two checkpoints or more" in errors
