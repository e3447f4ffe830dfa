from canonical_form import CanonicalForm, canonical_form, joins_first
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, Head, OneHot
from circuits.mechanisms import Previous, Uniform
from circuits.mechanisms.mechanism import Mechanism
from retrieval_interp.theory.chain_layout import chain_layout

LAYOUT = chain_layout(2)
JOIN1, JOIN2 = ("pair1.second", "pair1.first"), ("pair2.second", "pair2.first")
X1, X2 = ("query", "pair1.second"), ("query", "pair2.second")
WALK = CanonicalForm(((JOIN1, JOIN2), (X1,), (X2,)))


def circuit(*layers: tuple[tuple[str, str], ...]) -> Circuit:
    """A head in every layer, with these paths; one without is uniform."""
    made: dict[Head, Mechanism] = {
        Head(n, 0): OneHot(dict(paths)) if paths else Uniform() for n, paths in enumerate(layers)
    }
    return Circuit(made)


def test_it_does_not_count_in_which_heads_and_layers_the_same_is_done() -> None:
    together = circuit((JOIN1, JOIN2), (X1,), (X2,))
    apart = circuit((JOIN2,), (), (JOIN1,), (X1,), (), (X2,))
    late = circuit((JOIN1,), (X1, JOIN2), (X2,))  # nobody needs the second pair before x1 is there
    assert canonical_form(together, LAYOUT) == canonical_form(apart, LAYOUT) == canonical_form(late, LAYOUT) == WALK
    assert str(WALK) == (
        "pair1.second -> pair1.first, pair2.second -> pair2.first; then query -> pair1.second; then "
        "query -> pair2.second"
    )


def test_a_head_that_attends_to_the_position_before_joins_every_pair() -> None:
    previous = Circuit({Head(0, 0): Previous(), Head(1, 0): OneHot(dict([X1])), Head(2, 0): OneHot(dict([X2]))})
    assert canonical_form(previous, LAYOUT) == WALK
    assert joins_first(previous, LAYOUT)


def test_what_builds_on_something_else_is_another_kind() -> None:
    doubling = circuit((JOIN1, JOIN2), (("pair1.second", "pair2.second"),), (X1,))
    assert canonical_form(doubling, LAYOUT).stages == ((JOIN1, JOIN2), (("pair1.second", "pair2.second"),), (X1,))
    before = circuit((X2,), (JOIN1, JOIN2), (X1,))
    assert canonical_form(before, LAYOUT).stages == ((JOIN1, JOIN2, X2), (X1,))  # X2 comes first, and needs nobody


def test_a_path_that_is_there_twice_counts_once_unless_it_brings_something_new() -> None:
    assert canonical_form(circuit((JOIN1, JOIN2), (JOIN1, X1), (X1,), (X2,)), LAYOUT) == WALK
    ahead = ("pair1.second", "pair2.second")
    again = circuit((JOIN1, JOIN2), (X1,), (ahead,), (X1,))  # the second time x2 comes along
    assert canonical_form(again, LAYOUT).stages == ((JOIN1, JOIN2), (ahead, X1), (X1,))


def test_heads_of_one_layer_do_not_build_on_each_other() -> None:
    beside = Circuit({Head(0, 0): OneHot(dict([JOIN1])), Head(0, 1): OneHot(dict([X1]))})
    assert canonical_form(beside, LAYOUT).stages == ((JOIN1, X1),)
    assert not joins_first(beside, LAYOUT)


def test_the_lowest_layer_with_paths_joins_pairs_or_does_something_else() -> None:
    assert joins_first(circuit((), (JOIN1,), (X1,)), LAYOUT)
    assert not joins_first(circuit((X1,), (JOIN1,)), LAYOUT)
    assert not joins_first(circuit((JOIN1, X1)), LAYOUT)
    assert not joins_first(circuit((("pair1.second", "pair2.first"),)), LAYOUT)
    assert not joins_first(circuit(()), LAYOUT)


@given(
    st.lists(st.lists(st.sampled_from([JOIN1, JOIN2, X1, X2]), max_size=3, unique_by=lambda path: path[0]), max_size=5),
    st.data(),
)
def test_layers_without_paths_change_no_kind(layers: list[list[tuple[str, str]]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(layers)))
    one, other = layers, [*layers[:place], [], *layers[place:]]
    assert canonical_form(circuit(*map(tuple, one)), LAYOUT) == canonical_form(circuit(*map(tuple, other)), LAYOUT)
