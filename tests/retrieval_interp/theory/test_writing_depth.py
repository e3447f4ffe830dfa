import pytest

from circuits import BadInput
from circuits.flow.layout import Layout
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.information_flow import spread
from retrieval_interp.theory.writing import fewest_written, fewest_written_table, hops, hops_table

LONG = 40


def by_simulation(n_layers, n_written, order, reads="words"):
    """The chain with one position more for every step, which finds the one before it and reads the furthest symbol that
    is known by then, or all that is known there, or nothing."""
    layout, reached = chain_layout(LONG, order), 0
    layout = Layout({**layout.start, "query": layout.start["query"] | {"own"}}, layout.places | {"own"})
    for written in range(n_written + 1):
        last = "query" if not written else f"written{written}"
        known = next(state for layer, state in enumerate(spread(layout, causal=True)) if layer == n_layers)[last]
        reached = max(int(piece[1:]) for piece in known if piece.startswith("x"))
        read = {"words": {f"x{reached}"}, "thoughts": known, "pauses": set()}[reads]
        start = {**layout.start, f"written{written + 1}": frozenset({"own", f"w{written + 1}", *read})}
        layout = Layout(start, layout.places)
    return reached


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
@pytest.mark.parametrize("n_written", [0, 1, 2, 3])
@pytest.mark.parametrize("order", [None, range(1, LONG + 1)])
def test_the_number_of_hops_is_that_of_the_simulation(n_layers, n_written, order):
    assert hops(n_layers, n_written) == by_simulation(n_layers, n_written, order)


def test_seven_hops_take_four_layers_or_fewer_and_some_writing():
    assert [fewest_written(7, n_layers) for n_layers in (1, 2, 3, 4, 5)] == [None, 6, 2, 0, 0]


def test_the_fewest_symbols_are_enough_and_one_less_is_not():
    for n_layers in (2, 3, 4):
        for n_steps in range(1, 40):
            written = fewest_written(n_steps, n_layers)
            assert hops(n_layers, written) >= n_steps
            assert written == 0 or hops(n_layers, written - 1) < n_steps


def test_the_table_has_layers_down_and_symbols_across():
    table = hops_table(3, 2)
    assert table.to_numpy().tolist() == [[0, 0, 0], [1, 2, 3], [3, 6, 9]]
    assert table.index.tolist() == [1, 2, 3]
    fewest = fewest_written_table([3, 7], 4)  # two layers do one hop at a time, three do three, four do seven
    assert (fewest.to_numpy().tolist(), fewest.columns.tolist()) == ([[2, 0, 0], [6, 2, 0]], [2, 3, 4])


@pytest.mark.parametrize(("n_layers", "n_written"), [(0, 0), (2, -1), (65, 0)])
def test_numbers_that_make_no_sense_are_refused(n_layers, n_written):
    with pytest.raises(BadInput, match="expected 1 to 64 layers"):
        hops(n_layers, n_written)
    with pytest.raises(BadInput, match="0 hops; expected at least 1"):
        fewest_written(0, 2)
