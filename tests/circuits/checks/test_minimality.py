"""Paths and positional heads taken from circuits of which it is known what each is good for."""

import pytest

from circuits import Circuit, Head
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import _removal, minimal, minimality
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss
from tests.handmade import ChainTask, walking_circuit

TASK, TRUE = ChainTask(1), walking_circuit(1)
WHOLE = Circuit({**TRUE.heads, "L0H1": "idle", "L1H1": "idle"})
JOIN, FETCH = (AttentionPath.parse(text) for text in ("L0H0 pair1.second -> pair1.first", "L1H0 query -> pair1.second"))


@pytest.fixture(scope="module")
def planted():
    return compile_circuit(TRUE, TASK, n_heads=2)


def removed(model, circuit, n_examples=1024):
    experiment = Experiment(model, TASK, circuit, n_examples=n_examples)
    parts = minimality(experiment)
    return {str(part): part for part in parts}, minimal(experiment, parts)


def test_what_answers_matters_directly_and_what_only_tells_it_where_to_look_indirectly(planted):
    parts, said = removed(planted, WHOLE, n_examples=128)
    assert {name: part.needed for name, part in parts.items()} == {str(JOIN): "indirectly", str(FETCH): "directly"}
    assert parts[str(FETCH)].losses["uniform"].excess == pytest.approx(1.0, abs=0.01)  # all of the range
    assert parts[str(FETCH)].intact == {}  # nothing more to show
    assert parts[str(JOIN)].intact["identity"].decision == "above"
    assert said.decision == "holds"
    assert f"any one of these: {FETCH}. Without these it does so with heads intact only: {JOIN}." in said.sentence


def test_a_positional_head_matters_if_the_heads_above_miss_its_output(planted):
    by_position = WHOLE.with_head("L0H0", Experiment(planted, TASK, WHOLE, n_examples=8).means[Head(0, 0)])
    parts, said = removed(planted, by_position, n_examples=128)
    assert parts["L0H0 made idle"].needed == "indirectly"
    assert parts["L0H0 made idle"].losses["idle"].excess == pytest.approx(0.0, abs=1e-4)  # L1H0 is told where to look
    assert parts["L0H0 made idle"].intact["idle"].excess == pytest.approx(1.0, abs=0.01)
    assert said.decision == "holds"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda own: own.with_head("L1H0", {"query": "pair1.second", "pair1.second": "pair1.first"}), "L1H0 pair1"),
        (lambda own: own.with_head("L1H1", "identity"), "L1H1 made idle"),
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
    assert _removal(part, ["uniform", "identity"], *shown, solved=True).needed == needed
