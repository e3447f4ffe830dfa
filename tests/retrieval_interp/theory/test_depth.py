import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.depth import bound_paper, depths, layers_by_position, layers_causal, layers_full
from retrieval_interp.theory.figures import spread_figure
from retrieval_interp.theory.information_flow import layers_until
from tests.command import run
from tests.refusals import assert_refused


@pytest.mark.parametrize(("causal", "last_first"), [(False, True), (True, True), (True, False)])
def test_the_closed_forms_agree_with_information_flow(causal, last_first):
    closed = layers_causal if causal else layers_full
    for n_steps in (*range(1, 23), 31, 32, 60, 61):  # between them neither number changes
        order = None if last_first else range(1, n_steps + 1)
        by_sets = layers_until(chain_layout(n_steps, order), "query", f"x{n_steps}", causal=causal)
        assert closed(n_steps) == by_sets, n_steps


@pytest.mark.parametrize("last_first", [True, False])
def test_fetching_by_position_saves_exactly_the_layer_that_joins_the_pairs(last_first):
    for n_steps in range(1, 31):
        layout = chain_layout(n_steps, None if last_first else range(1, n_steps + 1))
        by_position = layers_until(layout, "query", f"x{n_steps}", causal=True, by_position=True)
        assert by_position == layers_by_position(n_steps) == layers_causal(n_steps) - 1


@given(st.integers(1, 9).flatmap(lambda n_steps: st.permutations(range(1, n_steps + 1))))
def test_no_order_of_the_pairs_takes_more_layers_than_the_last_step_first(order):
    layers = layers_until(chain_layout(len(order), order), "query", f"x{len(order)}", causal=True)
    assert layers_full(len(order)) <= layers <= layers_causal(len(order))


def test_the_causal_depth_is_that_of_k_hop_induction():
    for k in range(1, 2001):
        assert layers_causal(k) == math.floor(math.log2(k)) + 2 == 1 + math.ceil(math.log2(k + 1))


def test_the_exact_depths_are_never_below_the_papers_bound():
    for row in depths(range(1, 2001)):
        assert row.bound_paper <= row.layers_full <= row.layers_causal


def test_a_million_hops_are_known_at_once_and_no_hops_or_too_many_are_refused():
    assert (layers_full(10**6), layers_causal(10**6)) == (14, 21)  # 3^14 = 4782969 >= 4000001; 2^21 > 2000000
    assert bound_paper(10**6) == pytest.approx(13.206, abs=1e-3)
    for n_steps in (0, -3, 10**19):
        assert_refused(f"{n_steps} hops; expected a whole number from 1", depths, [n_steps])


def test_the_command_prints_json_and_writes_a_table_and_a_page(tmp_path, capsys):
    code, out, _ = run(capsys, "theory", "depth", 1, 3, 5, "--json")
    assert code == 0
    layers = [
        (row["hops"], row["layers_full"], row["layers_causal"], row["layers_by_position"]) for row in json.loads(out)
    ]
    assert layers == [(1, 2, 2, 1), (3, 3, 3, 2), (5, 3, 4, 3)]
    assert run(capsys, "theory", "depth", 2, 4, "--out", tmp_path)[0] == 0
    comment, header, first, _ = (tmp_path / "depth.csv").read_text().splitlines()
    assert comment == "# retrieval-interp theory depth 2 4"
    assert header == "hops,bound_paper,layers_full,layers_causal,layers_by_position"
    assert first.startswith("2,1.26")
    assert 'id="table"' in (tmp_path / "depth.html").read_text()


def test_the_figure_shows_what_is_known_and_what_is_new():
    start, first, second, *_ = spread_figure(chain_layout(2), ["query", "pair1.second"], causal=True).frames
    assert start.data[0].z.tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]  # p0, x0; p1, x1
    assert first.data[0].z.tolist() == [[1, 1, 2, 0], [0, 2, 1, 1]]
    assert second.data[0].z[0].tolist() == [1, 1, 1, 2]
