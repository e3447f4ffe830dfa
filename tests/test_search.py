from unittest.mock import patch

import pytest
import torch

from circuits import Circuit, Head, Identity, OneHot, Previous, Roles, Uniform, role_attention
from circuits.changes import merged, moves, neighbours, redirections, without_one_path
from circuits.fixing import survivors_of
from circuits.hypotheses import noticeable_paths
from circuits.judge import Judge, Judgement
from circuits.loss import Loss
from circuits.refining import improve, repair, shrink, smallest
from circuits.search import Search, State, Step


def state(n_paths, loss):
    """A circuit of so many paths with such a loss."""
    heads = {Head(layer, 0): OneHot({"query": "pair1.first"}) for layer in range(n_paths)}
    judgement = Judgement(Loss(loss, 0.001, {"x1": loss}, 128), "below")
    return State(Circuit(heads or {Head(0, 0): Uniform()}), (Step({}, judgement),))


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
    return State(circuit, (Step({}, search.judge([circuit])[0]),))


def test_a_circuit_above_the_threshold_is_repaired(search, circuit):
    broken = judged(search, circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"})))
    assert broken.judgement.side == "above"
    assert repair(search, broken).circuit.paths == circuit.paths


def test_a_path_too_many_is_taken_away_and_those_that_guide_the_heads_above_stay(search, circuit):
    rows = {"query": "pair1.second", "pair1.second": "pair1.first"}
    too_many = judged(search, circuit.with_head(Head(1, 0), OneHot(rows)))
    assert shrink(search, too_many).circuit.paths == circuit.paths


def test_a_path_that_is_worth_something_alone_goes_all_the_same_when_the_others_do_without_it(
    search, circuit, monkeypatch
):
    monkeypatch.setattr(search, "explained", lambda asked, layers=None: frozenset([1] if layers is None else layers))
    (smaller, *_) = without_one_path(circuit)
    (alone,) = search.judge([Circuit({Head(0, 0): smaller.heads[Head(0, 0)]})])
    assert alone.side == "above"
    assert [path.head for path in shrink(search, judged(search, circuit)).circuit.paths] == [Head(1, 0)]


def test_repairs_change_one_head_or_move_a_path_or_merge_two_heads(search, circuit):
    noticed = {**search.noticed, Head(0, 0): {"query": ("pair1.second",)}}
    around = set(neighbours(circuit, search.roles, noticed))
    assert circuit.with_head(Head(1, 0), Uniform()) in around
    assert circuit not in around
    two_at_once = {changed for changed in around if len(changed.difference(circuit)) == 2}
    mergers = {together for *_, together in merged(circuit, circuit.useful_heads, search.roles)}
    assert two_at_once == {*moves(circuit, noticed)} | mergers
    assert two_at_once


def test_a_change_of_two_heads_stands_in_the_log_with_both(search, circuit):
    (_, _, together), *_ = merged(circuit, circuit.useful_heads, search.roles)
    before = judged(search, circuit)
    (after,) = search.tried([(before, together)])
    search.note("as a whole", after, True, "why")
    (trial,) = search.trials
    assert trial.change == {Head(0, 0): Uniform(), Head(1, 0): together.heads[Head(1, 0)]}
    assert trial.given == 0
    assert after.history == (*before.history, Step(trial.change, after.judgement))


def test_every_change_of_a_whole_circuit_stands_in_the_log(search, circuit):
    rows = {"query": "pair1.second", "pair1.second": "pair1.first"}
    shrink(search, judged(search, circuit.with_head(Head(1, 0), OneHot(rows))))
    log = [trial for trial in search.trials if trial.order == "as a whole"]
    assert sum(trial.taken for trial in log) == 1
    assert any(not trial.taken and "another path goes first" in trial.reason for trial in log)


def test_what_breaks_alone_while_another_mechanism_does_not_is_refused_and_logged_once(search):
    candidates = [Uniform(), OneHot({"query": "pair1.second"})]
    for _ in range(2):
        assert search.fitting(Head(1, 0), candidates) == candidates[1:]
    (refused,) = search.trials
    assert (refused.order, refused.change, refused.taken) == ("alone", {Head(1, 0): Uniform()}, False)


def test_only_what_a_simpler_mechanism_does_better_alone_fails_step_3(search):
    uniform = Circuit({Head(1, 0): Uniform()})
    (state,) = search.tried([(State(Circuit()), uniform)])
    assert search.failing_step_3([state]) == set()  # only the one-hot mechanism does alone
    search._replaced[Head(1, 0)].append(Identity())  # as if that did too
    assert search.failing_step_3([state]) == {uniform}


def test_a_path_that_leads_astray_is_led_home_and_the_log_says_why(search, circuit):
    # pair1.first holds what the query knows already; threshold and all else are such that both circuits are low
    search.judge.threshold = 10.0
    astray = judged(search, circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"})))
    monotone = {"shrink": lambda search, state: state}
    with patch.multiple("circuits.refining", **monotone):
        best, _ = improve(search, astray)
    assert best.circuit == circuit
    taken = [trial for trial in search.trials if trial.taken]
    assert [(trial.change, trial.reason) for trial in taken] == [
        ({Head(1, 0): OneHot({"query": "pair1.second"})}, "the loss is lower by three standard errors")
    ]
    assert best.history[-1].reason == "the loss is lower by three standard errors"


def test_what_would_lose_heads_above_their_way_is_no_alternative_and_the_log_says_so(search, circuit, monkeypatch):
    search.judge.threshold = 10.0
    state = judged(search, circuit)
    monkeypatch.setattr(search, "explained", lambda asked, layers=None: frozenset([1]) if asked == circuit else set())
    best, others = improve(search, state)
    assert (best.circuit, others) == (circuit, [])
    elsewhere = [trial for trial in search.trials if "query -> pair1.first" in str(trial.change.get(Head(1, 0)))]
    assert elsewhere
    assert {trial.reason for trial in elsewhere} == {"heads above would lose their way"}


def test_the_smallest_circuit_has_no_regard_for_the_heads_above(search, circuit):
    state = judged(search, circuit)
    assert shrink(search, state).circuit.paths == circuit.paths
    assert [path.head for path in smallest(search, state).circuit.paths] == [Head(1, 0)]


def test_of_roles_that_always_stand_at_one_position_only_the_first_is_offered():
    positions = torch.tensor([[[0], [1], [2], [2]]] * 3)
    tied = Roles(("a", "b", "query", "asked"), positions)
    assert tied.distinct == ("a", "b", "query")
    assert tied.pairs == (("b", "a"), ("query", "a"), ("query", "b"))
    attention = torch.ones(1, 1, 4, 4)
    assert noticeable_paths(attention, tied, Head(0, 0)) == {"b": ("a",), "query": ("a", "b")}


def test_a_path_moves_to_every_head_that_attends_along_it_too(circuit):
    noticed = {Head(0, 0): {"query": ("pair1.second",)}, Head(1, 0): {"query": ("pair1.second",)}}
    moved = list(moves(circuit, noticed))
    with_both = OneHot({"pair1.second": "pair1.first", "query": "pair1.second"})
    assert [c.heads for c in moved] == [
        {Head(0, 0): with_both, Head(1, 0): simple} for simple in (Uniform(), Identity())
    ]


def test_changes_are_those_written_down_by_hand(circuit, problem):
    roles = problem.examples(4, seed=0).roles
    assert list(redirections(circuit, roles)) == [circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"}))]
    changed = [c.difference(circuit) for c in without_one_path(circuit)]
    assert [{str(head): str(new) for head, (new, _) in heads.items()} for heads in changed] == [
        {head: way}
        for head, source in (("L0H0", "pair1.second"), ("L1H0", "query"))
        for way in ("uniform", "identity", f"{source} -> uniform", f"{source} -> identity")
    ]


def test_a_path_goes_with_its_row_alone_where_the_rest_of_the_head_is_worth_something():
    kept = Circuit({Head(0, 0): OneHot({"query": "pair1.second"}, "identity")})
    assert [str(c.heads[Head(0, 0)]) for c in without_one_path(kept)] == [
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
