import pytest
import torch

from circuits import Circuit, Head, Identity, OneHot, Previous, Roles, Uniform, role_attention
from circuits.changes import merged, moves, redirections, without_one_path
from circuits.judge import Judge, Judgement
from circuits.loss import Loss
from circuits.search import Search, State, survivors_of


def state(n_paths, loss):
    """A circuit of so many paths with such a loss."""
    heads = {Head(layer, 0): OneHot({"query": "pair1.first"}) for layer in range(n_paths)}
    judgement = Judgement(Loss(loss, 0.001, {"x1": loss}, 128), "below")
    return State(Circuit(heads or {Head(0, 0): Uniform()}), ((Head(0, 0), judgement),))


def test_of_every_size_the_best_survive_as_long_as_more_paths_mean_a_lower_loss():
    tried = [state(1, 0.040), state(1, 0.030), state(1, 0.035), state(2, 0.031), state(2, 0.020), state(3, 0.025)]
    kept = [(s.size, s.judgement.loss.mean) for s in survivors_of(tried)]
    assert kept == [(1, 0.030), (1, 0.035), (2, 0.020)]


def test_when_too_many_survive_the_smallest_and_the_best_are_kept():
    kept = survivors_of([state(size, 0.05 - 0.001 * size) for size in range(12)])
    assert [s.size for s in kept] == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.fixture
def search(model, problem):
    examples = problem.examples(256, seed=0)
    return Search(Judge(model, problem, examples, threshold=0.05), role_attention(model, examples))


def judged(search, circuit):
    return State(circuit, ((Head(1, 0), search.judge([circuit])[0]),))


def test_a_circuit_above_the_threshold_is_repaired(search, circuit):
    broken = judged(search, circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"})))
    assert broken.judgement.side == "above"
    assert search.repair(broken).circuit.paths == circuit.paths


def test_a_path_too_many_is_taken_away_and_those_that_guide_the_heads_above_stay(search, circuit):
    rows = {"query": "pair1.second", "pair1.second": "pair1.first"}
    too_many = judged(search, circuit.with_head(Head(1, 0), OneHot(rows)))
    assert search.shrink(too_many).circuit.paths == circuit.paths


def test_every_change_of_a_whole_circuit_stands_in_the_log(search, circuit):
    rows = {"query": "pair1.second", "pair1.second": "pair1.first"}
    search.shrink(judged(search, circuit.with_head(Head(1, 0), OneHot(rows))))
    log = [trial for trial in search.trials if trial.order == "as a whole"]
    assert sum(trial.taken for trial in log) == 1
    assert any(not trial.taken and "another path goes first" in trial.reason for trial in log)
    alone = [(trial.head, trial.candidate) for trial in search.trials if trial.order == "alone"]
    assert len(alone) == len(set(alone))


def test_a_path_moves_to_every_head_that_attends_along_it_too(circuit):
    noticed = {Head(0, 0): {"query": ("pair1.second",)}, Head(1, 0): {"query": ("pair1.second",)}}
    moved = list(moves(circuit, noticed))
    with_both = OneHot({"pair1.second": "pair1.first", "query": "pair1.second"})
    assert [head for head, _ in moved] == [Head(0, 0)] * 2
    assert [c.heads for _, c in moved] == [
        {Head(0, 0): with_both, Head(1, 0): simple} for simple in (Uniform(), Identity())
    ]


def test_changes_are_those_written_down_by_hand(circuit, problem):
    roles = problem.examples(4, seed=0).roles
    assert [(head, str(m)) for head, m in redirections(circuit, roles)] == [(Head(1, 0), "query -> pair1.first")]
    assert [(str(head), str(m)) for head, m in without_one_path(circuit)] == [
        (head, way)
        for head, source in (("L0H0", "pair1.second"), ("L1H0", "query"))
        for way in ("uniform", "identity", f"{source} -> uniform", f"{source} -> identity")
    ]


def test_a_path_goes_with_its_row_alone_where_the_rest_of_the_head_is_worth_something():
    kept = Circuit({Head(0, 0): OneHot({"query": "pair1.second"}, "identity")})
    assert [str(m) for _, m in without_one_path(kept)] == [
        "uniform",
        "identity",
        "query -> uniform; elsewhere identity",
    ]


def test_merging_a_previous_token_head_joins_every_pair_of_neighbours_that_has_names(problem):
    roles = problem.examples(4, seed=0).roles
    low, high = Head(0, 0), Head(1, 0)
    circuit = Circuit({low: Previous(), high: OneHot({"query": "pair1.second"}, "identity")})
    both = {"pair1.second": "pair1.first", "query": "pair1.second"}
    assert [(giver, taker, dict(c.heads)) for giver, taker, c in merged(circuit, [low, high], roles)] == [
        (low, high, {low: simple, high: OneHot(both, "identity")}) for simple in (Uniform(), Identity())
    ] + [(high, low, {low: OneHot(both), high: simple}) for simple in (Uniform(), Identity())]


def test_heads_that_lead_one_role_to_two_others_cannot_be_merged(problem):
    roles = problem.examples(4, seed=0).roles
    heads = {Head(0, 0): OneHot({"query": "pair1.second"}), Head(1, 0): OneHot({"query": "pair1.first"})}
    assert list(merged(Circuit(heads), list(heads), roles)) == []


def test_heads_whose_rows_clash_or_have_no_names_cannot_be_merged():
    apart = Roles(("a", "b", "q"), torch.tensor([[[0], [3], [6]]]))  # no two of them are neighbours
    clash = {Head(0, 0): OneHot({"b": "a", "q": "uniform"}), Head(1, 0): OneHot({"q": "b"})}
    assert list(merged(Circuit(clash), list(clash), apart)) == []
    nameless = {Head(0, 0): Previous(), Head(1, 0): Previous(), Head(2, 0): OneHot({"q": "b"})}
    assert list(merged(Circuit(nameless), list(nameless), apart)) == []
