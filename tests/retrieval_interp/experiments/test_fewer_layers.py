import json
from dataclasses import asdict, replace

import pytest
import torch

from circuits import BadInput, Circuit, compile_circuit
from retrieval_interp.cli import main
from retrieval_interp.experiments import fewer_layers, fewer_layers_mechanism
from retrieval_interp.experiments.depth_sweep import MLPs, Point, TrainingCondition
from retrieval_interp.experiments.fewer_layers import POINTS, ROLES, Outcome, experiment, train_once
from retrieval_interp.experiments.fewer_layers_mechanism import attention_to_pairs, fetched, last_layer
from retrieval_interp.experiments.fewer_layers_page import write_fewer_layers
from retrieval_interp.experiments.fewer_layers_rules import rows, sentences
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.ground_truth.chains import ChainProblem
from retrieval_interp.models.build import VectorTransformer
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.theory.depth import least_loss_one_layer
from retrieval_interp.training.training_step import TrainingStep
from tests.browser import opened

BLOCKS = StepOrder.LAST_FIRST


def where(last=0.8):
    """What is measured of a model of two layers that learned x2."""
    known = {f"{x} at {role}": 0.1 for x in ("x1", "x2") for role in ROLES}
    known |= {"x1 at pair1.second": 0.9, "x2 at pair2.second": last}
    return {"known": known, "attended": dict.fromkeys(ROLES, 0.2) | {"pair1.second": 0.9}}


def one_hop(seed, loss, heads=8, fixed=4, gated=0):
    shared = {"standard_errors": {"x1": 0.01}, "fixed": fixed, "gated": gated, "n_pairs": 4, "found": 1}
    own = (1, 1, BLOCKS, heads, MLPs.EVERY, seed, 100, 100, {"x1": loss})
    return Outcome(*own, **shared, by_way_of_x1=None)


def two_hops(seed, loss, by_way_of_x1):
    shared = {"standard_errors": {"x1": 0.01, "x2": 0.01}, "fixed": 0, "gated": 3, "n_pairs": 4, "found": 0}
    own = (2, 2, BLOCKS, 8, MLPs.LAST, seed, 100, 100, {"x1": 0.1, "x2": loss})
    return Outcome(*own, **shared, by_way_of_x1=by_way_of_x1, **where(0.8))


def test_heads_bring_at_most_as_many_sums_as_they_are():
    assert [least_loss_one_layer(heads, 4) for heads in (1, 2, 4, 8)] == [0.75, 0.5, 0, 0]
    assert least_loss_one_layer(2, 8) == 0.75
    with pytest.raises(BadInput, match="the number of pairs is 0; expected 1"):
        least_loss_one_layer(2, 0)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_the_best_linear_estimate_from_a_heads_sums_of_symbols_has_the_least_loss(heads):
    """The bound against least squares: sums with fixed weights, and an estimate for every pair in question."""
    draw = torch.Generator().manual_seed(0)
    symbols, weights = torch.randn(20_000, 4, generator=draw), torch.eye(4)[:heads]
    sums = symbols @ weights.T
    errors = [
        (symbols[:, [k]] - sums @ torch.linalg.lstsq(sums, symbols[:, [k]]).solution).square().mean() for k in range(4)
    ]
    assert torch.stack(errors).mean().item() == pytest.approx(least_loss_one_layer(heads, 4), abs=0.02)


def test_as_many_heads_as_pairs_answer_by_attention_alone():
    """One head for each of four pairs; no MLP. What is in question is found at first members, not at second ones.

    Head k attends to the second member of pair k by position. If another pair is in question, its first member, which
    has the query's symbol, gets more. So one head brings x1, and three bring x0, which the query itself has.
    """
    n, dims, pairs = 64, 512, 4
    draw = torch.Generator().manual_seed(0)
    first, second = (torch.randn(n, pairs, dims, generator=draw) for _ in range(2))
    asked = torch.randint(pairs, (n,), generator=draw)
    at, keys = torch.arange(n), torch.cat([first, second], dim=1)  # [example, position, dim]
    query = first[at, asked]
    scores = torch.einsum("nd,npd->np", query, keys)[:, None].repeat(1, pairs, 1)  # [example, head, position]
    own = torch.arange(pairs)
    scores[:, own, own] -= 2 * dims  # a head never looks at the first member of its own pair
    scores[:, own, pairs + own] += dims / 2
    heads = scores.softmax(-1) @ keys  # [example, head, dim]
    answer = heads.sum(dim=1) - (pairs - 1) * query
    assert (answer - second[at, asked]).square().mean().item() < 1e-6


def test_a_pair_is_fetched_by_a_fixed_head_or_by_one_that_the_question_gates():
    seconds = torch.full((4, 3, 3), 0.1)  # [head, asked, pair]
    seconds[0, :, 0] = 0.9  # a fixed head: always pair 0
    seconds[1, 1, 1] = 0.8  # gated: pair 1 only when it is asked for
    seconds[2, :, 2] = torch.tensor([0.3, 0.1, 0.8])  # neither: pair 2 gets too much when it is not asked for
    first = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [0.9, 0.9, 0.4], [0.9, 0.8, 0.7]])
    assert fetched(seconds, first) == (1, 1, 3, 1)
    seconds[3, :, 0] = torch.tensor([0.8, 0.0, 0.0])  # a gated head for a pair that is fetched anyway
    assert fetched(seconds, first).gated == 1


def test_x2_is_where_the_paths_of_the_first_layer_bring_it():
    """The walk: the first layer joins pairs, so that x2 is at its own pair. Then the query takes x1, and x2."""
    problem = ChainProblem(2, n_chains=4)
    walk = Circuit(
        {
            "L0H0": {"pair1.second": "pair1.first", "pair2.second": "pair2.first"},
            "L1H0": {"query": "pair1.second"},
            "L2H0": {"query": "pair2.second"},
        }
    )
    model = compile_circuit(walk, problem)
    known, attention = last_layer(model, problem)
    there = {"x1 at pair1.second": 1.0, "x2 at pair2.second": 1.0}
    assert known == {f"{x} at {role}": 0.0 for x in ("x1", "x2") for role in ROLES} | there
    assert attention == pytest.approx(dict.fromkeys(ROLES, 0.0) | {"pair2.second": 1.0}, abs=1e-3)


@pytest.mark.parametrize("order", [StepOrder.LAST_FIRST, StepOrder.ANY])
def test_attention_is_counted_by_the_place_of_the_pair_in_question(order):
    """A model that attends uniformly gives every position the same: one part of as many as the query sees."""
    preset = Point(2, 1, TrainingCondition(order, 2, MLPs.EVERY)).preset(20)
    model = VectorTransformer(preset.config, seed=0)
    for weight in (model.blocks[0].attn.W_Q, model.blocks[0].attn.b_Q):
        torch.nn.init.zeros_(weight)
    seconds, first = attention_to_pairs(model, preset.task)
    places = 8 if order is StepOrder.ANY else 4
    assert (seconds.shape, first.shape) == ((2, places, places), (2, places))
    seen = [1 / n for n in range(17, 21)]  # 16 positions of pairs, and the queries up to this one
    assert min(seen) <= seconds.min()
    assert seconds.max() <= max(seen)
    assert torch.allclose(seconds.mean(dim=2), first)


def test_an_mlp_in_the_last_layer_alone_leaves_the_others_silent(monkeypatch):
    monkeypatch.setattr(TrainingStep, "compile", lambda self: None)
    from retrieval_interp.experiments.depth_sweep import trained

    model, task, _ = trained((0, Point(2, 2, TrainingCondition(BLOCKS, 2, MLPs.LAST))), 20)
    first, last = (block.mlp for block in model.blocks)
    assert all((weight == 0).all() for weight in first.parameters())
    assert not any((weight == 0).all() for weight in last.parameters())
    inputs = task.examples(4, seed=0).inputs
    silent = model(inputs)  # the first MLP is not computed; if it is, it writes nothing
    model.blocks[0].cfg = model.cfg
    assert torch.equal(model(inputs), silent)


def test_a_model_is_trained_and_measured(monkeypatch):
    monkeypatch.setattr(TrainingStep, "compile", lambda self: None)
    monkeypatch.setattr(fewer_layers_mechanism, "EXAMPLES", 16)
    shares = []
    one = train_once((0, POINTS[0]), 40, shares.append)
    assert (shares, one.by_way_of_x1, list(one.losses), one.n_pairs) == ([0.5, 1.0], None, ["x1"], 4)
    two = train_once((1, POINTS[-1]), 20)
    assert (two.point, two.seed, two.n_pairs, list(two.losses)) == (POINTS[-1], 1, 8, ["x1", "x2"])
    assert 0 <= two.by_way_of_x1 <= 1
    assert (two.known, two.attended) == ({}, {})
    monkeypatch.setattr(fewer_layers, "LEARNED", 2.0)
    learned = train_once((1, POINTS[-1]), 20)
    assert len(learned.known) == 2 * len(ROLES)
    assert learned.known["x1 at query"] == learned.by_way_of_x1 == two.by_way_of_x1
    assert {*learned.attended} == {*ROLES}


def test_the_statements_count_what_was_learned_and_how():
    some = [one_hop(0, 0.1), one_hop(1, 0.2, gated=3, fixed=0), one_hop(0, 0.4, heads=2), two_hops(0, 0.1, 0.9)]
    first, few, second = rows(some)
    assert (first["learned"], first["runs"], first["by_position"], first["below_bound"]) == (2, 2, 1, 0)
    assert first["loss"] == pytest.approx(0.15)
    assert (few["bound"], few["below_bound"]) == (0.5, 1)  # 0.4 + 3 * 0.01 is below a half
    assert (second["bound"], second["below_bound"], second["by_way_of_x1"]) == (None, None, 1)
    assert (few["both_in_last"], second["both_in_last"]) == (None, 1)
    said = sentences(some)
    assert all("undecided whether the condition breaches" in one for one in said[:3])  # too few of ten runs
    assert "1 of 1 models of one layer with fewer heads than pairs" in said[3]
    assert "is undecided before all models have 10 runs (2 of 4 do" in said[4]
    assert "is undecided before all models have 10 runs (1 of 1 do" in said[5]
    assert "(two layers, seeds from 2) is undecided" in said[6]


@pytest.mark.parametrize(
    ("learned", "runs", "says"),
    [
        (5, 5, "undecided"),
        (6, 6, "breaches"),
        (5, 10, "does not breach"),
        (0, 5, "does not breach"),
        (4, 8, "undecided"),
    ],
)
def test_a_condition_breaches_if_more_than_half_of_ten_runs_learn_the_symbol(learned, runs, says):
    """What the runs that are not finished could still change is undecided."""
    some = [one_hop(seed, 0.1 if seed < learned else 0.9) for seed in range(runs)]
    assert f"{says} " in sentences(some)[0]
    assert ("undecided" in sentences(some)[0]) == (says == "undecided")


def test_mechanisms_are_stated_when_every_model_has_ten_runs():
    def run(point, seed):
        own, symbols = point.condition, [f"x{k}" for k in range(1, point.n_steps + 1)]
        shape = (point.n_steps, point.n_layers, own.step_order, own.n_heads, own.mlps, seed, 100, 100)
        losses = dict.fromkeys(symbols, 0.1)
        two = {"by_way_of_x1": 0.9, **where(0.1)} if point.n_layers > 1 else {"by_way_of_x1": None}
        return Outcome(*shape, losses, losses, 4, 0, 4, 1, **two)

    said = sentences([run(point, seed) for seed in range(10) for point in POINTS])
    assert sum("does not breach" in one for one in said) == 0
    assert "query (two layers) holds (120 of 120 do" in said[-2]
    assert "seeds from 2) does not hold (0 of 96 do" in said[-1]
    attends = where()["attended"] | {"pair2.second": 0.6}
    assert [two_hops(2, 0.1, 0.1).both_in_last, replace(two_hops(2, 0.1, 0.1), attended=attends).both_in_last] == [1, 0]


def test_the_runs_go_on_where_they_stopped_and_none_is_repeated(tmp_path, monkeypatch):
    made = []

    def counted(key, steps, progress):
        made.append(key)
        seed, point = key
        own = point.condition
        losses = {f"x{k}": 0.5 for k in range(1, point.n_steps + 1)}
        shape = (point.n_steps, point.n_layers, own.step_order, own.n_heads, own.mlps)
        return Outcome(*shape, seed, steps, steps, losses, losses, 0, 0, 4, 0, 0.5 if point.n_layers > 1 else None)

    monkeypatch.setattr(fewer_layers, "train_once", counted)
    experiment(1, 100, tmp_path)
    assert [run.seed for run in experiment(2, 100, tmp_path)] == [0] * len(POINTS) + [1] * len(POINTS)
    assert len(made) == len(set(made)) == 2 * len(POINTS)
    with pytest.raises(BadInput, match="holds runs of 100 steps; choose another folder"):
        experiment(1, 200, tmp_path)
    damaged = json.loads((tmp_path / RUNS).read_text().splitlines()[0]) | {"n_heads": 3}
    (tmp_path / RUNS).write_text(json.dumps(damaged) + "\n")
    with pytest.raises(BadInput, match=r"runs.jsonl, line 1: not a run of this experiment"):
        experiment(1, 100, tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        *(
            {"losses": {"x1": -1}},
            {"standard_errors": {"x1": -1}},
            {"fixed": 5},
            {"fixed": 4, "gated": 1},
            {"found": -1},
        ),
        *({"stopped": 0}, {"stopped": 101}, {"by_way_of_x1": 0.5}, {"known": {"x1 at query": 0.5}}, {"n_pairs": 0}),
    ],
)
def test_a_number_that_cannot_be_is_named_with_its_line(tmp_path, changed):
    lines = [asdict(one_hop(0, 0.1)), asdict(one_hop(1, 0.1)) | changed]
    (tmp_path / RUNS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BadInput, match=r"runs.jsonl, line 2: not a run of this experiment"):
        experiment(1, 100, tmp_path)


def test_a_run_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / RUNS).write_text(2 * (json.dumps(asdict(one_hop(0, 0.1))) + "\n"))
    with pytest.raises(BadInput, match=r"runs.jsonl: holds a run twice"):
        experiment(1, 100, tmp_path)


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--steps", "10"]])
def test_what_cannot_be_trained_is_refused(arguments, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["study", "fewer-layers", *arguments, "--out", str(tmp_path / "new")])
    out, errors = capsys.readouterr()
    assert (ended.value.code, out, errors.count("\n")) == (2, "", 1)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_page_shows_every_model_offline(tmp_path):
    some = [one_hop(0, 0.1), replace(one_hop(1, 0.3), fixed=1), two_hops(0, 0.1, 0.9)]
    with opened(write_fewer_layers(some, tmp_path, "by hand")) as (page, complaints):
        assert page.locator("#sentences li").count() == 2 + 4
        assert page.locator("#fewer_layers-table tr").count() == 1 + 2
        assert page.locator("#fewer_layers .legendtext").count() == 3
        assert not complaints
    assert (tmp_path / "fewer_layers.csv").read_text().splitlines()[0] == "# by hand"
