import json

import pytest
import torch

from circuits import BadInput, Circuit
from circuits.losses.mean import Mean
from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.cli import main
from retrieval_interp.experiments.beyond_training import (
    BeyondTraining,
    Scores,
    ShiftOutcome,
    SymbolScores,
    beyond_training,
    scores_of,
)
from retrieval_interp.experiments.beyond_training_page import write_beyond_training
from retrieval_interp.experiments.shift_predictions import Prediction
from retrieval_interp.experiments.shifts import SHIFTS
from retrieval_interp.models.presets import Architecture
from tests.browser import opened

TASK = RetrievalTask(n_steps=2, n_chains=2)
CIRCUIT = Circuit(
    {
        "L0H0": {"pair1.second": "pair1.first", "pair2.second": "pair2.first"},
        "L1H0": {"query": "pair1.second", "pair1.second": "pair2.second"},
    }
)
BY_NAME = {shift.name: shift for shift in SHIFTS}


def answered(name, change):
    """The scores of a model that gives the right answers by chain, changed by a function, ``[batch, chain, ...]``."""
    drawn = BY_NAME[name].examples(TASK, 64, seed=1)
    answers = change(drawn.wanted.clone(), drawn)
    asked = drawn.examples.roles["query"]
    outputs = torch.zeros(64, TASK.n_positions, TASK.d_output)
    outputs[torch.arange(64)[:, None], asked] = answers.flatten(2)
    return scores_of(drawn, lambda examples: outputs)


def test_right_answers_survive_with_no_loss():
    for scores in answered("training", lambda wanted, drawn: wanted).values():
        assert (scores.total.loss.mean, scores.total.accuracy.mean) == (0.0, 1.0)
        assert scores.total.outcome == "survives"


def test_the_answers_of_the_other_chain_break():
    for scores in answered("training", lambda wanted, drawn: wanted.flip(1)).values():
        assert scores.total.accuracy.mean == 0.0
        assert scores.total.outcome == "breaks"


def test_a_failure_in_one_slot_shows_in_that_slot_only():
    def fail(wanted, drawn):
        return torch.where((drawn.slots == 1)[..., None], drawn.draws.symbols[:, :, :1], wanted)  # x0 instead

    x2 = answered("training", fail)["x2"]
    assert [own.accuracy.mean for own in x2.by_slot.values()] == [1.0, 0.0]
    assert x2.total.accuracy.mean == 0.5
    assert str(x2) == "0.50 ± 0.00 (0.00 to 1.00 by slot)"


def test_equal_symbols_are_equally_right():
    scores = answered("last symbol shared", lambda wanted, drawn: wanted.flip(1))
    assert (scores["x1"].total.accuracy.mean, scores["x2"].total.accuracy.mean) == (0.0, 1.0)


def test_only_the_counted_chains_are_measured():
    def fail(wanted, drawn):
        wanted[:, -1] = 9.0
        return wanted

    assert answered("one chain empty", fail)["x2"].total.accuracy.mean == 1.0


def by_hand(accuracy, error=0.001):
    total = Scores(Mean(0.1, 0.01, 64), Mean(accuracy, error, 64))
    return SymbolScores(total, {0: total})


@pytest.mark.parametrize(
    ("accuracy", "error", "outcome"), [(0.95, 0.001, "survives"), (0.85, 0.001, "breaks"), (0.95, 0.02, "undecided")]
)
def test_an_accuracy_within_three_standard_errors_of_the_limit_is_undecided(accuracy, error, outcome):
    assert by_hand(accuracy, error).total.outcome == outcome


@pytest.fixture(scope="module")
def found():
    """Training survives; one shift agrees on x1, and disagrees on x2."""
    every = {"x1": by_hand(1.0), "x2": by_hand(1.0)}
    plain = ShiftOutcome(BY_NAME["training"], Prediction(("x1", "x2"), "nothing changed"), every, every)
    scores = {"x1": by_hand(1.0), "x2": by_hand(0.3)}
    swapped = ShiftOutcome(BY_NAME["uniform"], Prediction(("x1", "x2"), "a reason"), scores, None, "a mean is short")
    return BeyondTraining((plain, swapped))


def test_the_counts_leave_training_out(found):
    assert found.counts() == {"agrees": 1, "disagrees": 1, "undecided": 0}
    assert not found.holds
    assert BeyondTraining(found.outcomes[:1]).holds


def test_the_sentences_say_what_was_predicted_what_happened_and_why_the_circuit_does_not_fit(found):
    summary, _, last = found.sentences()
    assert summary.startswith("Of 2 predictions, one for every shift and symbol, 1 agree")
    assert "x1, x2 should survive, because a reason" in last
    assert "x1 1.00 ± 0.00 agrees, x2 0.30 ± 0.00 disagrees" in last
    assert "The circuit does not fit: a mean is short." in last


def test_a_model_that_solves_nothing_is_said_to_solve_nothing():
    model = VectorTransformer(Architecture(2, 1, 16, 16).config(TASK), seed=0)
    found = beyond_training(model, TASK, CIRCUIT, n_examples=8)
    assert found.sentences()[0] == "The model does not solve the task without a shift, so these say little."
    reversed_ = next(one for one in found.outcomes if one.shift.name == "blocks reversed")
    assert reversed_.refused.startswith("L1H0 pair1.second -> pair2.second is against the causal mask")
    assert {one.shift.name for one in found.outcomes if one.circuit is None} == {"blocks reversed"}
    assert len(found.table()) == sum(
        (2 if one.circuit else 1) * 2 * (1 + len(one.model["x1"].by_slot)) for one in found.outcomes
    )


def test_a_circuit_that_does_not_fit_the_model_is_refused():
    model = VectorTransformer(Architecture(1, 1, 16, 16).config(TASK), seed=0)
    with pytest.raises(BadInput, match="L1H0 does not exist"):
        beyond_training(model, TASK, CIRCUIT, n_examples=8)


def test_the_induction_head_survives_what_names_no_distribution():
    found = beyond_training(*load("induction"), n_examples=64)
    outcomes = {one.shift.name: one.model["x1"].total.outcome for one in found.outcomes}
    assert outcomes["training"] == outcomes["uniform"] == outcomes["chains in line"] == "survives"
    assert outcomes["members swapped"] == "breaks"


@pytest.mark.slow
def test_the_command_writes_its_table_and_page(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "beyond-training", "induction", "--examples", "16", "--out", str(tmp_path), "--json"])
    assert ended.value.code in (0, 1)
    document = json.loads(capsys.readouterr().out)
    assert document["shifts"][0]["shift"] == "training"
    header = (tmp_path / "beyond_training.csv").read_text().splitlines()[0]
    assert header == "# retrieval-interp study beyond-training induction --examples 16 --seed 0"


def test_a_model_of_another_task_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "beyond-training", "conditional"])
    assert ended.value.code == 2
    assert "conditional: expected a model of the retrieval problem" in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_shows_every_shift_and_symbol_without_a_network(tmp_path, found):
    with opened(write_beyond_training(found, "micro", tmp_path, "retrieval-interp study ...")) as (page, complaints):
        assert page.locator("#sentences li").count() == 3
        assert page.locator("#shifts-table tr").count() == 1 + 4
        assert page.locator("#shifts-table .failed").count() == 1
        assert page.locator("#accuracy .main-svg").count() > 0
        assert complaints == []
