"""Gates of all heads at once; the truth is planted or is that of ablation."""

import pytest
import torch

from circuits import Circuit, Head, discover, evaluate, validate
from circuits.averages import averages
from circuits.discovery import ranked
from circuits.discovery.gates import MEANS, Mixed, learned_gates
from circuits.discovery.ranked import Learned, Ranked, circuit_at
from circuits.ground_truth import compile_circuit
from circuits.losses.loss import Loss, Mean
from circuits.losses.sequential_test import DecidedLoss, Range, SequentialTest
from circuits.mechanisms.mechanism import Intact
from circuits.settings import deciding
from circuits.utils.kept import keeping
from tests.handmade import ChainTask, walking_circuit
from tests.refusals import assert_refused

N_STEPS = 2
EVERY = [Head(layer, index) for layer in range(4) for index in range(3)]


@pytest.fixture(scope="module")
def planted():
    task = ChainTask(N_STEPS)
    return compile_circuit(walking_circuit(N_STEPS), task, n_layers=4, n_heads=3), task


class Losses:
    """A task without differences: the distance is the loss."""

    def __init__(self, task):
        self.roles, self.output_roles, self.loss_components = task.roles, task.output_roles, task.loss_components
        self.examples, self.losses = task.examples, task.losses


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_mixture_of_one_mechanism_is_that_mechanism(random_model, chains, which):
    means, examples = averages(random_model, chains), chains.examples(64, seed=1)
    ways = [Circuit(means.patterns), Circuit(dict.fromkeys(means.patterns, "uniform")), Circuit({(0, 1): "previous"})]
    mixed = Mixed(random_model, Losses(chains), examples, [*means.patterns], ways)
    weights = torch.nn.functional.one_hot(torch.full((len(means.patterns),), which), len(ways)).float()
    expected = evaluate(random_model, chains, examples, [ways[which]], averages=means).mean().item()
    assert mixed.distance(weights).item() == pytest.approx(expected, rel=1e-4)


def test_gates_open_for_the_heads_whose_average_pattern_costs_something(planted):
    """Of a planted circuit; the paths of other heads are as good as their own patterns, and cheaper."""
    model, task = planted
    means, examples = averages(model, task, n_examples=256), task.examples(64, seed=1)
    ways = [Circuit(means.patterns), walking_circuit(N_STEPS), Circuit()]
    gates = learned_gates(model, task, examples, ways, (0.0001, 0.005), 96)
    alone = evaluate(model, task, examples, [Circuit({head: means.patterns[head]}) for head in gates], averages=means)
    needed = {head for head, loss in zip(gates, alone.mean(dim=(1, 2)), strict=True) if loss > 0.02}
    assert 0 < len(needed) < len(walking_circuit(N_STEPS).heads)
    assert {*circuit_at(-1, Learned(ways, gates)).looking} == needed
    assert all(weights[-1, 2] < 0.1 for weights in gates.values())


def test_gates_that_start_from_weights_are_driven_to_0_or_1_and_others_are_not(planted):
    model, task = planted
    means, examples = averages(model, task, n_examples=64), task.examples(64, seed=1)
    ways, first = [Circuit(means.patterns), Circuit()], dict.fromkeys(EVERY, torch.tensor([0.5, 0.5]))
    given = model, task, examples, ways, (0.2, 0.2), 48
    mixed, settled = (torch.stack([*learned_gates(*given, start).values()])[:, -1] for start in (None, first))
    assert mixed.amax(dim=1).min() < 0.85
    assert settled.amax(dim=1).min() > 0.99


class Silent(ChainTask):
    """The chain task with a measure that is always 0."""

    measures = ("silence",)

    def measured(self, outputs, examples):
        return torch.zeros(len(examples), 1)


def test_a_measure_that_is_zero_leaves_the_distance_as_it_is(planted):
    model, task = planted
    examples, ways = task.examples(8, seed=1), [Circuit(dict.fromkeys(EVERY, "uniform")), Circuit()]
    weights = torch.tensor([[1.0, 0.0]]).expand(len(EVERY), 2)
    one, other = (Mixed(model, each, examples, EVERY, ways).distance(weights) for each in (task, Silent(N_STEPS)))
    assert torch.equal(one, other)


def test_the_distance_counts_a_shift_of_all_answers_beside_each_difference(planted):
    """Of a task whose differences are 0, all that is left is the change of the average loss."""
    model, task = planted
    means, examples = averages(model, task, n_examples=64), task.examples(64, seed=1)
    blind = ChainTask(N_STEPS)
    blind.differences = lambda outputs, others, examples: torch.zeros(len(examples), 1, 1)
    ways = [Circuit(means.patterns), Circuit()]
    weights = torch.tensor([[1.0, 0.0]]).expand(len(EVERY), 2)
    own, changed = evaluate(model, task, examples, [Circuit(), ways[0]], averages=means).mean(dim=(1, 2))
    distance = Mixed(model, blind, examples, EVERY, ways).distance(weights)
    assert distance.item() == pytest.approx(MEANS * (changed - own).abs().item(), rel=1e-4)
    assert distance > 0.1


def test_intact_heads_whose_paths_do_as_well_get_these_and_others_stay_intact(planted):
    model, task = planted
    means = averages(model, task, n_examples=64)
    test = SequentialTest(model, task, task.examples(512, seed=1), 0.05, means, searching=True)
    planned = walking_circuit(N_STEPS).heads
    *_, last = planned
    ways = {**planned, last: means.patterns[last]}  # this one is needed
    found = Ranked(test, task.examples(2, seed=0), means)._simpler(
        "simplify", Circuit(dict.fromkeys(planned, "intact")), ways
    )
    assert found.heads == {**planned, last: Intact()}


def test_a_planted_circuit_is_found_by_gates_and_its_validation_names_what_was_not_tested(planted):
    model, task = planted
    with deciding(one_by_one=4):
        found = discover(model, task, n_examples=256)
        report = validate(model, task, found.circuit, n_examples=256)
    assert found.found
    assert {*found.circuit.looking} <= {*walking_circuit(N_STEPS).heads_with_paths}
    assert {*found.circuit.heads} == {*EVERY}
    assert report.paper is None
    assert {*found.circuit.looking} == {one.head for one in report.parts}
    assert {one.needed for one in report.parts} <= {"directly", "undecided"}  # heads above were not tried
    assert "were not tested one by one" in " ".join(report.notes)


class KnownLosses(SequentialTest):
    """A test in which the excess of a circuit depends only on how many heads look at content; low is less than 0.1."""

    def __init__(self, excess):
        self.known, self.two_sided, self.threshold = excess, True, 0.1

    def excess(self, circuit, bounded):
        return Mean(self.known[len(circuit.looking)], 0.0, 512)

    def test(self, circuits, **limits):
        made = {key: self.known[len(circuit.looking)] for key, circuit in circuits.items()}
        low = {True: "below", False: "above"}
        return {key: DecidedLoss(Loss(one, 0.0, 32), low[abs(one) < 0.1], one) for key, one in made.items()}

    def test_one(self, circuit, max_examples):
        return self.test({None: circuit})[None]


@pytest.mark.parametrize(
    ("excess", "n_looking", "n_tried"),
    [
        ([0.9, 0.5, 0.3, 0.05, 0.04, 0.02], 3, 3),  # the loss falls
        ([0.9, 0.5, 0.08, 0.2, 0.08, 0.02], 2, 2),  # not with every head
        ([0.9, 0.5, 0.08, -0.3, -0.5, -0.6], 2, 2),  # more heads raise the logit difference above the model's
        ([0.9, 0.5, 0.2, -0.3, -0.5, -0.6], 2, 5),  # the loss jumps over what is low: the nearest
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 5, 5),  # it never is
    ],
)
def test_the_smallest_circuit_with_a_low_loss_is_taken_or_else_the_best(planted, excess, n_looking, n_tried):
    model, task = planted
    made = [Circuit(dict.fromkeys(EVERY, "uniform") | dict.fromkeys(EVERY[:n], "intact")) for n in range(6)]
    search = Ranked(KnownLosses(excess), task.examples(2, seed=0), averages(model, task, n_examples=2))
    assert search._fewest(reversed(made)) == made[n_looking]
    assert [trial.taken for trial in search.trials] == [n < n_looking for n in range(n_tried)]


OVER = [-0.6, -0.4, -0.3]  # of circuits with paths: better than the model, so that none is low


@pytest.mark.parametrize(
    ("with_paths", "n_looking"), [([0.3, 0.2, 0.05], 2), ([-0.05] * 3, 0), (OVER, 4), ([0.9, 0.8, 0.7], 4)]
)
def test_gates_settle_from_the_smallest_low_circuit_of_either_run(planted, monkeypatch, with_paths, n_looking):
    """Circuits of the run without paths have 3, 4 and 5 heads that look, and an excess of 0.5, 0.05 and 0.01."""
    model, task = planted
    search = Ranked(KnownLosses([*with_paths, 0.5, 0.05, 0.01]), task.examples(2, seed=0), averages(model, task))
    search.test.model, search.test.task, search.test.examples, began = model, task, task.examples(2, seed=0), []
    sizes, means = {2: (3, 4, 5), 3: (0, 1, 2)}, search.averages.patterns
    monkeypatch.setattr(ranked, "STEPS", ranked.FIRST + 3 * ranked.EVERY)
    monkeypatch.setattr(ranked, "one_hot_paths", lambda *given: {EVERY[0]: "uniform"})

    def known(self, ways, progress):
        falling = [n for n in sizes[len(ways)][::-1] for _ in range(ranked.EVERY)]  # the price rises, and heads close
        steps = [0] * ranked.FIRST + falling
        own = {
            head: torch.tensor([[float(n <= k), *[0.0] * (len(ways) - 2), float(n > k)] for n in steps])
            for k, head in enumerate(EVERY)
        }
        return Learned([Circuit(means), *ways[1:]], own)

    def settled(self, learned, step, progress):
        began.append(len(circuit_at(step, learned).looking))
        return []

    monkeypatch.setattr(Ranked, "_learned", known)
    monkeypatch.setattr(Ranked, "_settled", settled)
    monkeypatch.setattr(Ranked, "_simpler", lambda self, step, circuit, ways: circuit)
    search.circuit(task.examples(8, seed=0), lambda share: None)
    assert began == [n_looking]


def test_a_loss_is_low_in_the_search_only_if_its_average_is_with_examples_that_count_whole(planted):
    """One example in 64 loses 20 ranges: 0.016 if it counts 1, and 0.31 if it counts whole."""
    model, task = planted
    n, width = len(task.loss_components), {name: Loss(at, 0.0, 512) for name, at in (("own", 0.5), ("none", 1.5))}
    test = SequentialTest(model, task, task.examples(512, seed=1), 0.1, scale=Range(**width), searching=True)
    rare, lost = Circuit({EVERY[0]: "uniform"}), torch.zeros(512, n)
    for circuit, most in ((Circuit(), 0.0), (rare, 20.0)):
        lost[::64] = most
        test._losses[circuit.digest], test._n[circuit.digest] = lost.clone(), 512
    search = Ranked(test, task.examples(2, seed=0), averages(model, task))
    assert test.test_one(rare).decision == "below"
    assert not search._is_low(rare)


@pytest.mark.parametrize(("more", "low"), [(0.02, True), (0.06, False)])
def test_a_change_is_judged_by_what_it_adds_to_the_models_own_losses_however_far_these_spread(planted, more, low):
    model, task = planted
    own, n = torch.rand(512, 1, generator=torch.Generator().manual_seed(0)), len(task.loss_components)
    width = {name: Loss(at, 0.0, 512) for name, at in (("own", 0.5), ("none", 1.5))}
    test = SequentialTest(model, task, task.examples(512, seed=1), 0.05, scale=Range(**width), searching=True)
    base, changed = (Circuit({head: "uniform"}) for head in EVERY[:2])
    for circuit, excess in ((Circuit(), 0.0), (base, 0.01), (changed, more)):
        test._losses[circuit.digest], test._n[circuit.digest] = (own + excess).expand(-1, n), 512
    assert Ranked(test, task.examples(2, seed=0), averages(model, task))._stays_low(changed, base) is low


def stopped(folder, name, work):
    """Do some work and stop before all is done."""
    done = []
    with pytest.raises(KeyboardInterrupt), keeping(folder, {"model": name}):  # noqa: PT012
        done.append(work())
        raise KeyboardInterrupt
    return done[0]


def test_what_was_measured_before_work_was_stopped_is_not_measured_again(planted, tmp_path):
    model, task = planted
    examples, means = task.examples(64, seed=3), averages(model, task, n_examples=64)
    ways = {head: Circuit({head: "idle"}) for head in EVERY}
    first = SequentialTest(model, task, examples, 0.05, means)
    losses = stopped(tmp_path / "kept", "one", lambda: first.measure(ways.values()))
    with keeping(tmp_path / "kept", {"model": "one"}):
        again = SequentialTest(model, task, examples, 0.05, means)
        assert again.measure(ways.values()) == losses
        assert (first.n_evaluations, again.n_evaluations) == (64 * len(EVERY), 0)
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_is_no_unfinished_work_is_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused("is no folder of unfinished work", keeping(tmp_path, {}).__enter__)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_was_kept_of_another_model_is_measured_anew(planted, tmp_path):
    model, task = planted
    examples, means = task.examples(8, seed=3), averages(model, task, n_examples=64)
    for name in ("one", "other"):
        test = SequentialTest(model, task, examples, 0.05, means)
        stopped(tmp_path / "kept", name, lambda test=test: test.measure([Circuit({EVERY[0]: "idle"})]))
        assert test.n_evaluations == 8
