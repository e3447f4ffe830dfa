"""Faithful, complete and minimal (Wang et al. 2022), in models whose truth is compiled or written by hand."""

import pytest
import torch

from circuits import Circuit, Head, OneHot, discover, validate
from circuits.averages import averages
from circuits.checks.completeness import complete, completeness
from circuits.checks.experiment import STREAM, Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.checks.minimality import _removal, minimal, minimality
from circuits.given import OTHER_SEED, stream_seed
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss
from circuits.settings import deciding
from tests.handmade import SYMBOLS, ChainTask, InductionTask, induction_model, walking_circuit

TASK, TRUE = ChainTask(1), walking_circuit(1)  # L0H0 joins the pairs by position, L1H0 answers by content
IDLE = dict.fromkeys(("L0H1", "L1H1"), "idle")
WHOLE = Circuit({**TRUE.heads, **IDLE})


@pytest.fixture(scope="module")
def planted():
    return compile_circuit(TRUE, TASK, n_heads=2)


def measured(model, circuit, task=TASK):
    return faithfulness(Experiment(model, task, circuit, n_examples=128))


def test_the_heads_that_do_the_work_are_enough_under_both_ablations(planted):
    found = measured(planted, WHOLE)
    assert found.heads == (Head(0, 0), Head(1, 0))
    assert {kind: one.decision for kind, one in found.ablations.items()} == {"mean": "below", "resample": "below"}
    assert [verdict.decision for verdict in found.verdicts] == ["holds", "holds"]
    assert all(one.loss.mean < 1e-6 for one in found.ablations.values())


@pytest.mark.parametrize(("left_out", "patterns"), [("L1H0", "above"), ("L0H0", "below")])
def test_without_a_head_that_does_the_work_all_is_lost_although_average_patterns_do_not_miss_a_positional_one(
    planted, left_out, patterns
):
    found = measured(planted, WHOLE.with_head(left_out, "idle"))
    assert [verdict.decision for verdict in found.verdicts] == ["fails", "fails"]
    # Without L0H0, L1H0 spreads over three pairs, and the MLP drops tokens with so little attention.
    assert found.ablations["mean"].excess == pytest.approx(1.0, abs=0.01)  # one range: nothing is left of it
    assert found.patterns.decision == patterns
    assert found.notes[1].startswith("No other heads" if patterns == "below" else "Averages by position do not do")


def test_the_null_of_random_heads_has_every_other_set_once_and_not_the_circuit(planted):
    """Of the six pairs of four heads one is the circuit's."""
    with deciding(random_sets=40):
        found = measured(planted, WHOLE)
    assert [one.decision for one in found.random_heads] == ["above"] * 5
    assert found.notes[0].startswith("Of 5 random sets of 2 heads, 0 are low or undecided")
    assert found.positions.decision == "above"
    assert len(found.notes) == 2


class TokenBefore(InductionTask):
    """Asked for the token before: what the first head of the induction model brings by position alone."""

    def losses(self, outputs, examples):
        before = examples.inputs.gather(1, examples.roles["query"] - 1)
        asked = outputs.gather(1, examples.roles["query"][..., None].expand(-1, -1, SYMBOLS))
        return (asked - torch.nn.functional.one_hot(before, SYMBOLS)).square().sum(dim=-1).mean(dim=1, keepdim=True)


def test_of_a_task_that_positions_alone_solve_the_report_says_so():
    model = induction_model()
    answer, before = model.unembed.W_U[-SYMBOLS:], model.unembed.W_U[-2 * SYMBOLS : -SYMBOLS]
    before.data.copy_(answer)
    answer.data.zero_()
    report = validate(model, TokenBefore(), Circuit({"L0H0": "previous", "L1H0": "idle"}), n_examples=256)
    assert report.decision == "holds"
    assert any(note.startswith("Positions alone solve this task") for note in report.notes)


def test_averages_choices_and_tests_share_no_example(model, task, circuit, drawn):
    ways = {
        discover: ("discovery", "range", "content", "discovered", "means", "attention"),
        validate: (STREAM, f"{STREAM} means"),
        averages: ("means",),
    }
    tested = {"discovery", "range", "content", "discovered", STREAM}  # with other inputs, to resample from
    for way, streams in ways.items():
        drawn.clear()
        way(model, task, *([circuit] if way is validate else []), seed=4)
        seeds = {seed for _, seed in drawn} - {0, OTHER_SEED}  # without those on which the task is checked
        own = {stream: stream_seed(4, stream) for stream in streams}
        assert seeds == {*own.values()} | {stream_seed(own[stream], "others") for stream in tested & {*streams}}
    assert not {*ways[validate]} & {*ways[discover], *ways[averages]}


JOIN, ANSWER = OneHot({"pair1.second": "pair1.first"}), OneHot({"query": "pair1.second"})
JOINING, ASKING, BACKUP = Head(0, 0), Head(1, 0), Head(1, 1)


def knocked_out(*answering):
    """The knockouts of one head that joins the pairs and one that answers, in a model where some heads can answer."""
    model = compile_circuit(Circuit({JOINING: JOIN, **dict.fromkeys(answering, ANSWER)}), TASK, n_heads=2)
    circuit = Circuit({JOINING: JOIN, ASKING: ANSWER, Head(0, 1): "idle", BACKUP: "idle"})
    experiment = Experiment(model, TASK, circuit, n_examples=128)
    knockouts = completeness(experiment)
    return model, circuit, knockouts, complete(experiment, knockouts)


def test_where_no_other_head_does_the_work_every_knockout_costs_circuit_and_model_the_same():
    *_, knockouts, said = knocked_out(ASKING)
    assert {out.heads for out in knockouts} == {(JOINING,), (ASKING,), (JOINING, ASKING)}
    assert {out.decision for out in knockouts} == {"below"}
    assert all(out.of_circuit == out.of_model for out in knockouts)
    assert said.decision == "holds"


def test_a_backup_outside_the_circuit_is_found_by_the_knockout_of_the_head_that_it_stands_in_for():
    model, circuit, knockouts, said = knocked_out(ASKING, BACKUP)
    apart = {out.heads: out.difference for out in knockouts if out.decision == "above"}
    # Lost, both give each of three chains a third of their attention: 2/3 of each token, of which the MLP leaves 1/3.
    assert apart == {(ASKING,): pytest.approx(1.0, abs=0.01), (JOINING,): pytest.approx(1 / 3, abs=0.03)}
    assert said.decision == "fails"
    assert "Heads outside the circuit do part of its work. They differ without L1H0" in said.sentence
    report = validate(model, TASK, circuit, n_examples=128)
    failed = [verdict.name for verdict in report.verdicts if verdict.decision != "holds"]
    assert failed == ["faithful (resample)", "complete"]  # of another example, the backup answers wrongly
    assert [one.name for one in report.statements if one.decision == "fails"] == ["faithful", "complete"]


@pytest.mark.parametrize(
    ("kind", "decision", "said"), [("uniform", "holds", "all 4 heads"), ("idle", "fails", "All heads")]
)
def test_without_heads_outside_or_inside_there_is_nothing_to_knock_out(planted, kind, decision, said):
    experiment = Experiment(planted, TASK, Circuit(dict.fromkeys(WHOLE.heads, kind)), n_examples=128)
    assert completeness(experiment) == faithfulness(experiment).random_heads == ()
    assert complete(experiment, ()).decision == faithfulness(experiment).verdicts[1].decision == decision
    assert said in complete(experiment, ()).sentence


JOINS, FETCH = TRUE.paths


def removed(model, circuit, n_examples=1024):
    experiment = Experiment(model, TASK, circuit, n_examples=n_examples)
    parts = minimality(experiment)
    return {str(part): part for part in parts}, minimal(experiment, parts)


def test_what_answers_matters_directly_and_what_only_tells_it_where_to_look_indirectly(planted):
    parts, said = removed(planted, WHOLE, n_examples=128)
    assert {name: part.needed for name, part in parts.items()} == {str(JOINS): "indirectly", str(FETCH): "directly"}
    assert parts[str(FETCH)].losses["uniform"].excess == pytest.approx(1.0, abs=0.01)  # all of the range
    assert parts[str(FETCH)].intact == {}  # nothing more to show
    assert parts[str(JOINS)].intact["identity"].decision == "above"
    assert said.decision == "holds"
    assert f"any one of these: {FETCH}. Without these it does so with heads intact only: {JOINS}." in said.sentence


def test_a_positional_head_matters_if_the_heads_above_miss_its_output(planted):
    by_position = WHOLE.with_head("L0H0", Experiment(planted, TASK, WHOLE, n_examples=8).averages.patterns[Head(0, 0)])
    parts, said = removed(planted, by_position, n_examples=128)
    assert parts["L0H0 (made idle)"].needed == "indirectly"
    assert parts["L0H0 (made idle)"].losses["idle"].excess == pytest.approx(0.0, abs=1e-4)  # L1H0 is told where to look
    assert parts["L0H0 (made idle)"].intact["idle"].excess == pytest.approx(1.0, abs=0.01)
    assert said.decision == "holds"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda own: own.with_head("L1H0", {"query": "pair1.second", "pair1.second": "pair1.first"}), "L1H0 pair1"),
        (lambda own: own.with_head("L1H1", "identity"), "L1H1 (made idle)"),
        (lambda own: own.with_head("L0H1", "previous"), "L0H1 *"),
    ],
    ids=["a path", "a pattern", "a previous-token head that writes nothing"],
)
def test_what_nobody_misses_is_superfluous(planted, change, name):
    parts, said = removed(planted, change(WHOLE))
    needless = [part for part, found in parts.items() if found.needed == "no"]
    assert len(needless) == 1
    assert needless[0].startswith(name)
    assert said.decision == "fails"
    assert said.sentence.endswith(f"The loss does not rise by 0.01 of the range or more without {needless[0]}.")


def test_nothing_is_said_of_the_parts_of_a_circuit_that_does_not_solve_the_task(planted):
    parts, said = removed(planted, WHOLE.with_head("L1H0", {"query": "pair1.first"}), n_examples=128)
    assert {part.needed for part in parts.values()} == {"undecided"}
    assert (said.decision, said.sentence[:10]) == ("fails", "Not tested")


LOW, HIGH, OPEN = (DecidedLoss(Loss(0.0, 0.0, 64), side, 0.0) for side in ("below", "above", "undecided"))


@pytest.mark.parametrize(
    ("directly", "intact", "needed"),
    [
        ({"uniform": HIGH, "identity": HIGH}, {}, "directly"),
        ({"uniform": LOW, "identity": LOW}, {"uniform": [LOW, HIGH], "identity": [HIGH, LOW]}, "indirectly"),
        ({"uniform": LOW, "identity": LOW}, {"uniform": [LOW, LOW], "identity": [HIGH, HIGH]}, "no"),
        ({"uniform": HIGH, "identity": LOW}, {"uniform": [LOW, LOW], "identity": [LOW, HIGH]}, "indirectly"),
        ({"uniform": HIGH, "identity": LOW}, {"uniform": [LOW, LOW], "identity": [LOW, OPEN]}, "undecided"),
    ],
)
def test_a_path_can_go_if_one_and_the_same_row_loses_nothing(directly, intact, needed):
    part = FETCH.head, FETCH
    shown = ({(part, way): one for way, one in own.items()} for own in (directly, intact))
    assert _removal(part, ["uniform", "identity"], *shown, {}, solved=True).needed == needed
