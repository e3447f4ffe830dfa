import json
from dataclasses import asdict, replace

import pytest
import torch

from circuits import BadInput
from retrieval_interp import RetrievalTask, VectorTransformer
from retrieval_interp.cli import main
from retrieval_interp.experiments import thinking_ahead
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.experiments.thinking_ahead import (
    CONDITIONS,
    Outcome,
    arose,
    experiment,
    sentences,
    summary,
    train_once,
    training_step,
    verdict,
)
from retrieval_interp.experiments.thinking_ahead_page import write_thinking_ahead
from retrieval_interp.models.presets import PRESETS, Architecture, Preset, Recipe
from retrieval_interp.tasks.next_symbol import NextSymbolTask
from tests.browser import opened

MICRO = Preset(
    NextSymbolTask(n_steps=2, n_chains=2),
    Architecture(n_layers=2, n_heads=1, d_model=16, d_head=16),
    Recipe(steps=20, batch=8, training_examples=64, warmup=5, precision="float32"),
)
COMPONENTS = ("x1", "x2", "x2 at pair1.second")


def outcome(condition, seed, learned):
    steps = dict.fromkeys(COMPONENTS, 10.0 if learned else None)
    losses = dict.fromkeys(COMPONENTS, 0.1 if learned else 0.75)
    attention = {
        "pair1.second -> pair1.first": 0.9 if learned else 0.2,
        "pair2.second -> pair2.first": 0.9 if learned else 0.2,
        "query -> pair1.second": 0.3,
        "query -> pair2.second": 0.4,
    }
    held = {} if condition == "myopic, joined" else {"x0 at pair1.second": 0.1, "x1 at pair2.second": 1.0}
    return Outcome(condition, seed, "micro", 20, steps, losses, attention, dict.fromkeys(attention, "L0H0"), held, held)


def by_hand(**learned):
    """Five seeds; of each condition this many learn."""
    counts = dict(zip(CONDITIONS, (5, 0, 0, 5), strict=True)) | learned
    return [outcome(condition, seed, seed < n) for condition, n in counts.items() for seed in range(5)]


@pytest.mark.parametrize(
    ("ordinary", "myopic", "expected"),
    [
        (5, 0, "pre-caching"),
        (4, 1, "pre-caching"),
        (5, 2, "undecided"),
        (3, 0, "undecided"),
        (4, 4, "breadcrumbs"),
        (3, 5, "undecided"),
    ],
)
def test_the_verdict_follows_the_rule_of_the_protocol(ordinary, myopic, expected):
    assert verdict(by_hand(ordinary=ordinary, myopic=myopic)) == expected


def test_four_seeds_decide_nothing():
    assert verdict([one for one in by_hand() if one.seed < 4]) == "undecided"


def test_the_summary_counts_the_runs_that_learned():
    table = summary(by_hand(ordinary=4)).set_index(["condition", "loss of"])
    row = table.loc[("ordinary", "x1")]
    assert (row["learned"], row["runs"], row["low"], row["high"]) == (4, 5, 0.1, 0.75)
    assert row["loss"] == pytest.approx(0.23)
    assert table.loc[("myopic", "x2")]["learned"] == 0


def test_the_sentences_say_what_was_learned_and_which_paths_emerged():
    said = sentences(by_hand())
    assert said[0] == "By the query's x1: pre-caching."
    assert "x1 in 5, x2 in 5" in said[1]
    assert "pair1.second -> pair1.first in 5, pair2.second -> pair2.first in 5, query -> pair1.second in 0" in said[1]
    assert "pair1.second -> pair1.first in 0" in said[2]
    what = arose(by_hand()).groupby("condition")["what"].unique().map(set)
    assert what["myopic"] == {"attention", "probe error", "probe error before training"}
    assert what["myopic, joined"] == {"attention"}


def test_all_conditions_begin_with_the_same_losses_unless_a_path_is_forced():
    examples = MICRO.task.assemble(MICRO.task.training_set(8, 0))
    losses = {
        condition: training_step(condition, VectorTransformer(MICRO.config, 1), MICRO.task, MICRO.recipe).losses(
            examples
        )
        for condition in CONDITIONS
    }
    for condition in ("myopic", "keys and values detached"):
        torch.testing.assert_close(losses[condition], losses["ordinary"])
    assert not torch.allclose(losses["myopic, joined"], losses["ordinary"])


def test_all_conditions_take_different_steps():
    examples = MICRO.task.assemble(MICRO.task.training_set(8, 0))
    weights = []
    for condition in CONDITIONS:
        model = VectorTransformer(MICRO.config, 1)
        training_step(condition, model, MICRO.task, MICRO.recipe)(examples, 1e-2)
        weights.append(model.blocks[0].attn.W_V.detach().clone())
    assert not any(torch.equal(one, other) for i, one in enumerate(weights) for other in weights[:i])


def test_a_run_measures_losses_attention_and_what_pairs_hold():
    found = train_once("micro", MICRO, "myopic, joined", 3)
    assert found.attention["pair2.second -> pair2.first"] == pytest.approx(1.0)
    assert found.heads["pair2.second -> pair2.first"] == "L0H0"
    assert (tuple(found.losses), found.held, found.held_at_start) == (COMPONENTS, {}, {})
    free = train_once("micro", MICRO, "myopic", 3)
    assert (
        set(free.held)
        == set(free.held_at_start)
        == {f"x{j} at pair{k}.second" for k, j in ((1, 0), (1, 2), (2, 0), (2, 1))}
    )
    assert free == train_once("micro", MICRO, "myopic", 3)


def test_the_experiment_goes_on_where_it_stopped_and_repeats_nothing(tmp_path, monkeypatch):
    made = []

    def counted(name, chosen, condition, seed, progress):
        made.append((condition, seed))
        return outcome(condition, seed, True)

    monkeypatch.setattr(thinking_ahead, "train_once", counted)
    experiment("micro", MICRO, 1, tmp_path)
    outcomes = experiment("micro", MICRO, 2, tmp_path)
    assert made == [(condition, seed) for seed in (0, 1) for condition in CONDITIONS]
    assert [(one.condition, one.seed) for one in outcomes] == made
    with pytest.raises(BadInput, match="holds runs of micro with 20 steps"):
        experiment("micro", replace(MICRO, recipe=replace(MICRO.recipe, steps=40)), 2, tmp_path)


@pytest.mark.parametrize("field", ["learned", "losses", "attention", "heads", "held"])
def test_a_run_without_all_its_losses_and_paths_is_refused(tmp_path, field):
    run = json.loads(json.dumps(asdict(outcome("myopic", 0, True)))) | {field: {}}
    (tmp_path / RUNS).write_text(json.dumps(run) + "\n")
    with pytest.raises(BadInput, match=r"runs\.jsonl: myopic, seed 0: losses or paths are missing"):
        experiment("micro", MICRO, 2, tmp_path)


def test_what_cannot_be_an_experiment_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(BadInput, match="of D from 2"):
        experiment("micro", replace(MICRO, task=RetrievalTask(1)), 2, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_command_prints_its_verdict_and_writes_its_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "micro", replace(MICRO, task=RetrievalTask(2, 2)))
    with pytest.raises(SystemExit) as ended:
        main(["study", "thinking-ahead", "--preset", "micro", "--seeds", "2", "--out", str(tmp_path / "new"), "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "undecided"
    assert len((tmp_path / "new" / RUNS).read_text().splitlines()) == 2 * len(CONDITIONS)
    assert (tmp_path / "new" / "thinking_ahead.html").exists()


@pytest.mark.slow
def test_the_page_shows_every_condition_without_a_network(tmp_path):
    page_path = write_thinking_ahead(by_hand(), tmp_path, "retrieval-interp study thinking-ahead")
    with opened(page_path) as (page, complaints):
        assert page.locator("#sentences li").count() == 1 + len(CONDITIONS)
        assert page.locator("#losses-table tr").count() == 1 + len(CONDITIONS) * len(COMPONENTS)
        assert page.locator("#losses .main-svg").count() > 0
        assert complaints == []
