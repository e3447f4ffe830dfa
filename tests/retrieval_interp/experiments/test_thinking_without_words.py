import json
from dataclasses import asdict

import pytest
import torch

from circuits import BadInput
from retrieval_interp import VectorTransformer
from retrieval_interp.cli import main
from retrieval_interp.experiments import thinking_without_words
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.experiments.thinking_without_words import (
    AT_ONCE,
    CONDITIONS,
    Outcome,
    ThinkingStep,
    allowed,
    experiment,
    preset,
    reached,
    sentences,
    summary,
    train_once,
    verdicts,
)
from retrieval_interp.experiments.thinking_without_words_page import write_thinking_without_words
from retrieval_interp.tasks.thinking import PAUSES, THOUGHTS, WORDS, ThinkingTask
from tests.browser import opened

D = 3
USUAL = {WORDS: {1: 0, 2: 1, 3: 2}, THOUGHTS: {1: 0, 2: 1, 3: 2}, PAUSES: {1: 0}, AT_ONCE: {1: 0}}


def losses(learned, n_thoughts=D - 1):
    """The losses of a model that learned each of these symbols after a number of steps."""
    names = {f"x{k} after {s}" if s else f"x{k}": (s, k) for s in range(n_thoughts + 1) for k in range(s + 1, D + 1)}
    components = ThinkingTask(D, n_thoughts=n_thoughts).trained_components
    known = {name: learned.get(k) == s for name, (s, k) in names.items()}
    return {name: 0.1 if known.get(name) else 0.75 for name in components}


def by_hand(few=0, **others):
    """Five seeds of every condition; the first ``few`` of a changed condition are as usual."""
    outcomes = []
    for condition in CONDITIONS:
        for seed in range(5):
            learned = others.get(condition.replace(" ", "_"), {}) if seed >= few else {}
            own = losses(learned or USUAL[condition], 0 if condition == AT_ONCE else D - 1)
            cut = losses({1: 0}) if condition == THOUGHTS else {}
            outcomes.append(Outcome(condition, seed, D, 20, dict.fromkeys(own, None), own, cut))
    return outcomes


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        ({}, [0, 0, 0]),
        ({1: 0}, [1, 1, 1]),
        ({1: 0, 2: 1, 3: 2}, [1, 2, 3]),
        ({1: 0, 2: 1, 3: 1}, [1, 3, 3]),
        ({2: 0, 3: 2}, [0, 0, 0]),
        ({1: 0, 3: 1, 2: 1}, [1, 3, 3]),
    ],
)
def test_the_hops_reached_are_all_symbols_in_a_row_that_are_learned_by_then(learned, expected):
    assert reached(losses(learned), D) == expected


def test_the_lines_are_those_of_information_flow():
    assert {condition: allowed(condition, 4) for condition in CONDITIONS} == {
        WORDS: [1, 2, 3, 4],
        THOUGHTS: [1, 3, 4, 4],
        PAUSES: [1, 1, 1, 1],
        AT_ONCE: [1, 1, 1, 1],
    }


CONTROL, FLOW, SAME, MORE, NOTHING = verdicts(by_hand())


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (by_hand(), {CONTROL: "holds", FLOW: "not refuted", SAME: "yes", MORE: "no", NOTHING: "yes"}),
        (by_hand(thoughts={1: 0}), {SAME: "no", MORE: "undecided"}),
        (by_hand(pauses={2: 2}), {FLOW: "not refuted", NOTHING: "undecided"}),
        (by_hand(few=2, thoughts={1: 0}), {SAME: "undecided"}),
        (by_hand(thoughts={1: 0, 2: 1, 3: 1}), {FLOW: "not refuted", SAME: "yes", MORE: "yes"}),
        (by_hand(few=4, thoughts={1: 0, 2: 0, 3: 1}), {FLOW: "refuted for thoughts", MORE: "no"}),
        (by_hand(few=4, pauses={1: 0, 2: 1}), {FLOW: "refuted for pauses", NOTHING: "no"}),
        (by_hand(few=3, words={1: 0}), {SAME: "undecided", CONTROL: "holds"}),
        (
            by_hand(few=4, at_once={1: 0, 2: 0}),
            {CONTROL: "does not hold", FLOW: "refuted for at once", SAME: "undecided"},
        ),
        (by_hand(few=3, at_once={2: 0}), {CONTROL: "does not hold", SAME: "undecided", NOTHING: "undecided"}),
    ],
)
def test_the_verdicts_follow_the_rules_of_the_protocol(outcomes, expected):
    assert verdicts(outcomes).items() >= expected.items()


def test_four_seeds_can_refute_and_decide_nothing_else():
    few = [one for one in by_hand(few=3, words={1: 0, 2: 0}) if one.seed < 4]
    assert verdicts(few) == {**dict.fromkeys((CONTROL, SAME, MORE, NOTHING), "undecided"), FLOW: "refuted for words"}


def test_the_table_and_the_sentences_say_what_is_reached_and_allowed():
    table = summary(by_hand(few=4, thoughts={1: 0})).set_index(["condition", "steps"])
    row = table.loc[(THOUGHTS, 2)]
    assert (row["allowed"], row["median"], row["low"], row["high"], row["as many"], row["runs"]) == (3, 3, 1, 3, 4, 5)
    assert row["loss"] == pytest.approx((4 * 0.1 + 0.75) / 5)
    assert table.loc[("thoughts, cut", 2)]["high"] == 1
    said = sentences(by_hand())
    assert len(said) == 1 + len(CONDITIONS) + 1
    assert "after 0 to 2 steps, 1, 2, 3 hops of 1, 3, 3 allowed, in 5 runs" in said[2]


def test_all_conditions_have_the_same_losses_at_the_examples_before_training():
    own = {}
    for condition in CONDITIONS:
        chosen = preset(D, 20, condition)
        step = ThinkingStep(VectorTransformer(chosen.config, 1), chosen.task, chosen.recipe, condition)
        own[condition] = step.losses(chosen.task.assemble(chosen.task.training_set(8, 0)))
    shared = 2 * D - 1
    for condition in CONDITIONS:
        torch.testing.assert_close(own[condition][:shared], own[AT_ONCE])
    after = [own[condition][shared:] for condition in (WORDS, THOUGHTS, PAUSES)]
    assert not any(torch.equal(one, other) for i, one in enumerate(after) for other in after[:i])


def test_a_run_measures_every_loss_and_is_the_same_again():
    chosen = preset(2, 20, THOUGHTS)
    found = train_once(chosen, THOUGHTS, 3)
    assert tuple(found.losses) == tuple(found.with_pauses) == ("x1", "x2", "x2 at pair1.second", "x2 after 1")
    assert found.losses["x1"] == found.with_pauses["x1"]  # thoughts come after the query
    assert found.losses["x2 after 1"] != found.with_pauses["x2 after 1"]
    assert found == train_once(chosen, THOUGHTS, 3)


def test_the_experiment_goes_on_where_it_stopped_and_repeats_nothing(tmp_path, monkeypatch):
    made = []

    def counted(chosen, condition, seed, progress):
        made.append((condition, seed))
        return next(one for one in by_hand() if (one.condition, one.seed) == (condition, seed))

    monkeypatch.setattr(thinking_without_words, "train_once", counted)
    experiment(D, 20, 1, tmp_path)
    experiment(D, 20, 2, tmp_path)
    assert made == [(condition, seed) for seed in (0, 1) for condition in CONDITIONS]
    with pytest.raises(BadInput, match="holds runs of D = 3 with 20 steps"):
        experiment(2, 20, 2, tmp_path)
    with pytest.raises(BadInput, match="at least 20"):
        experiment(D, 10, 2, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("field", ["learned", "losses", "with_pauses"])
def test_a_run_without_all_its_losses_is_refused(tmp_path, field):
    run = next(asdict(one) for one in by_hand() if one.condition == THOUGHTS) | {field: {}}
    (tmp_path / RUNS).write_text(json.dumps(run) + "\n")
    with pytest.raises(BadInput, match=r"runs\.jsonl: thoughts, seed 0: losses are missing"):
        experiment(D, 20, 2, tmp_path)


@pytest.mark.slow
def test_the_command_prints_its_verdicts_and_writes_its_page(tmp_path, capsys):
    line = ["study", "thinking-without-words", "--hops", "2", "--seeds", "2", "--steps", "20", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*line, "--json"])
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["verdicts"][CONTROL] == "undecided"
    assert len((tmp_path / RUNS).read_text().splitlines()) == 2 * len(CONDITIONS)


@pytest.mark.slow
def test_the_page_shows_every_condition_without_a_network(tmp_path):
    page_path = write_thinking_without_words(by_hand(), tmp_path, "retrieval-interp study thinking-without-words")
    with opened(page_path) as (page, complaints):
        assert page.locator("#sentences li").count() == 2 + len(CONDITIONS)
        assert page.locator("#hops-table tr").count() == 1 + 4 * D + 1
        assert page.locator("#hops .scatterlayer .trace").count() == 2 * len(CONDITIONS)
        assert complaints == []
