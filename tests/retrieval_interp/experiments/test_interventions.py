import json
from dataclasses import replace

import pytest
import torch

from circuits import AttentionPath, BadInput, Head
from circuits.ablation.clamping import clamped
from circuits.attention import path_attention
from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.cli import main
from retrieval_interp.experiments import interventions as interventions
from retrieval_interp.experiments.interventions import CONDITIONS, Outcome, clamps, experiment, summary, train_clamped
from retrieval_interp.experiments.interventions_page import write_interventions
from retrieval_interp.experiments.runs import RUNS, read_runs
from retrieval_interp.models.presets import PRESETS, Architecture, Preset, Recipe
from retrieval_interp.training.training_step import TrainingStep
from tests.browser import opened

MICRO = Preset(
    RetrievalTask(n_steps=2, n_chains=2),
    Architecture(n_layers=2, n_heads=1, d_model=16, d_head=16),
    Recipe(steps=40, batch=8, training_examples=64, warmup=5),
)


def outcome(condition, seed, x1, x2):
    return Outcome(condition, seed, "micro", 100, {"x1": x1, "x2": x2})


@pytest.fixture(scope="module")
def by_hand():
    """Two seeds: free x2 at 60 and 80; with the induction head 20 and 20; without it never."""
    found = []
    for seed, free in ((0, 60.0), (1, 80.0)):
        found += [outcome("free", seed, free - 40, free), outcome("joined", seed, free - 40, free)]
        found += [outcome("induction", seed, 0.0, 20.0), outcome("not joined", seed, None, None)]
        found += [outcome("no x1", seed, None, free)]
    return found


def test_the_summary_pairs_every_run_with_the_free_run_of_its_seed(by_hand):
    table = summary(by_hand).set_index(["condition", "symbol"])
    forced = table.loc[("induction", "x2")]
    assert (forced["learned"], forced["step"], forced["later"]) == (2, 20.0, -50.0)
    assert (forced["low"], forced["high"]) == (-60.0, -40.0)  # two seeds can only be drawn so
    forbidden = table.loc[("not joined", "x2")]
    assert (forbidden["learned"], forbidden["step"], forbidden["later"]) == (0, 100.0, 30.0)
    assert table.loc[("free", "x2")]["later"] == 0.0


def test_the_sentences_say_what_never_happened(by_hand):
    free, joined, induction, forbidden, _ = interventions.sentences(by_hand)
    assert "x2 was learned in 2 of 2 runs, at step 70" in free
    assert "+0 steps compared with free [+0, +0]" in joined
    assert "-50 steps compared with free [-60, -40]" in induction
    assert "0 of 2 runs; at least +30 steps compared with free [+20, +40]" in forbidden


def test_every_condition_holds_what_it_says_in_a_model_at_its_start():
    model = VectorTransformer(MICRO.config, 0)
    examples = MICRO.task.examples(16, seed=3)
    paths = [AttentionPath(Head(1, 0), "query", target) for target in ("pair1.second", "pair2.first")]
    paths += [AttentionPath(Head(0, 0), "pair2.second", "pair2.first")]
    seen = {}
    for condition in CONDITIONS:
        with clamped(model, clamps(condition, MICRO.task), examples.roles):
            seen[condition] = path_attention(model, examples, paths).tolist()
    assert seen["joined"][2] == seen["induction"][2] == seen["induction"][0] == 1.0
    assert seen["not joined"][2] == seen["no x1"][0] == seen["no x1"][1] == 0.0
    assert all(0 < attention < 0.5 for attention in seen["free"])


def test_a_run_without_clamps_takes_the_steps_of_ordinary_training():
    exact = replace(MICRO.recipe, precision="float32")
    step = interventions.ClampedStep(VectorTransformer(MICRO.config, 1), MICRO.task, exact)
    plain = TrainingStep(VectorTransformer(MICRO.config, 1), MICRO.task, exact)
    examples = MICRO.task.assemble(MICRO.task.training_set(8, 0))
    for _ in range(3):
        torch.testing.assert_close(step(examples, 1e-3), plain(examples, 1e-3), rtol=1e-4, atol=1e-5)


def test_every_clamp_changes_the_losses_that_train():
    examples = MICRO.task.assemble(MICRO.task.training_set(8, 0))
    losses = {
        condition: interventions.ClampedStep(
            VectorTransformer(MICRO.config, 1), MICRO.task, MICRO.recipe, clamps(condition, MICRO.task)
        ).losses(examples)
        for condition in CONDITIONS
    }
    assert not any(torch.equal(losses["free"], losses[other]) for other in CONDITIONS if other != "free")


def test_the_same_seed_gives_the_same_outcome():
    one, again = (train_clamped("micro", MICRO, "joined", 4) for _ in range(2))
    assert one == again


def test_the_experiment_goes_on_where_it_stopped_and_repeats_nothing(tmp_path, monkeypatch):
    made = []

    def counted(name, chosen, condition, seed, progress):
        made.append((condition, seed))
        return outcome(condition, seed, 10.0, 20.0)

    monkeypatch.setattr(interventions, "train_clamped", counted)
    short = replace(MICRO, recipe=replace(MICRO.recipe, steps=100))
    experiment("micro", short, 1, tmp_path)
    shares = []
    outcomes = experiment("micro", short, 2, tmp_path, shares.append)
    assert made == [(condition, seed) for seed in (0, 1) for condition in CONDITIONS]
    assert [(o.condition, o.seed) for o in outcomes] == made
    assert shares[-1] == 1.0
    with pytest.raises(BadInput, match="holds runs of micro with 100 steps"):
        experiment("micro", MICRO, 2, tmp_path)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (replace(MICRO, recipe=replace(MICRO.recipe, steps=10)), "10 steps; expected at least 20"),
        (replace(MICRO, architecture=replace(MICRO.architecture, n_layers=1)), "L1H0 does not exist"),
        (replace(MICRO, task=RetrievalTask(n_steps=1)), "no head comes after the induction head"),
    ],
)
def test_what_cannot_be_an_experiment_is_refused_before_anything_is_trained(tmp_path, chosen, message):
    with pytest.raises(BadInput, match=message):
        experiment("micro", chosen, 2, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_runs_that_learn_other_symbols_are_refused(tmp_path):
    line = {"condition": "free", "seed": 0, "preset": "micro", "steps": 40, "learned": {"x1": 3, "x9": 4}}
    (tmp_path / RUNS).write_text(json.dumps(line) + "\n")
    with pytest.raises(BadInput, match="symbols x1, x9"):
        experiment("micro", MICRO, 2, tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", "[" * 100_000, '{"condition": "free"}', '{"condition": 3, "learned": {}}'])
def test_a_damaged_file_of_runs_is_one_line(tmp_path, line):
    (tmp_path / RUNS).write_text(line + "\n")
    with pytest.raises(BadInput, match=r"runs.jsonl, line 1: not a run of this experiment"):
        experiment("micro", MICRO, 2, tmp_path)


@pytest.mark.parametrize(
    "whole", ["", '{"condition": "free", "seed": 0, "preset": "micro", "steps": 40, "learned": {}}\n']
)
def test_a_run_that_was_cut_off_when_the_experiment_was_killed_is_made_again(tmp_path, whole):
    (tmp_path / RUNS).write_text(whole + '{"condition": "joi')
    assert len(read_runs(tmp_path / RUNS, Outcome)) == whole.count("\n")
    (tmp_path / RUNS).write_text("")  # killed before the first one was written
    assert read_runs(tmp_path / RUNS, Outcome) == []


def test_a_task_of_one_step_has_no_later_head():
    with pytest.raises(BadInput, match="no head comes after the induction head"):
        clamps("free", RetrievalTask(n_steps=1))


def test_the_lower_half_is_forced_in_the_first_head_of_the_first_layer():
    (clamp,) = clamps("joined", MICRO.task)
    assert (clamp.head, clamp.forced) == (Head(0, 0), True)
    assert dict(clamp.rows) == {"pair1.second": "pair1.first", "pair2.second": "pair2.first"}


@pytest.mark.slow
def test_the_command_prints_its_rows_and_writes_its_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "micro", replace(MICRO, recipe=replace(MICRO.recipe, steps=20)))
    with pytest.raises(SystemExit) as ended:
        main(["study", "interventions", "--preset", "micro", "--seeds", "2", "--out", str(tmp_path / "new"), "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == len(CONDITIONS) * 2
    assert len((tmp_path / "new" / RUNS).read_text().splitlines()) == 2 * len(CONDITIONS)
    assert (tmp_path / "new" / "interventions.html").exists()


@pytest.mark.slow
def test_the_page_shows_every_condition_without_a_network(tmp_path, by_hand):
    with opened(write_interventions(by_hand, tmp_path, "retrieval-interp study interventions")) as (page, complaints):
        assert page.locator("#sentences li").count() == len(CONDITIONS)
        assert page.locator("#interventions-table tr").count() == 1 + len(CONDITIONS) * 2
        assert page.locator("#interventions .main-svg").count() > 0
        assert complaints == []
