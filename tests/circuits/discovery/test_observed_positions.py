import pytest
import torch

from circuits import Circuit, Head, OneHot, Roles, ablated
from circuits.discovery.observed_paths import observed_positions, possible_rows
from circuits.mechanisms import Condition
from circuits.model.layers import layers
from circuits.model.state import check_state

# Two chains, whose seconds stand at 1 and 3; the queries at 4 and 5.
POSITIONS = torch.tensor([[[1, 3], [4, 5]], [[3, 1], [4, 5]]])
SLOTS = torch.tensor([[[0, 1], [0, 1]], [[1, 0], [0, 1]]])
ROLES = Roles(("second", "query"), POSITIONS, {"slot": SLOTS})


EVERYWHERE = torch.ones(2, 2, dtype=torch.bool)


def rows(source, attention, left=EVERYWHERE, roles=ROLES):
    """Of the only role whose labels may choose."""
    found = possible_rows(source, attention, left, roles, "slot", on=0.5)
    return found[0][1] if found else {}


def attention(of_slot_0: int, of_slot_1: int) -> torch.Tensor:
    """From a query to one position, or another, by the slot of its chain's second."""
    found = torch.zeros(2, 2, 6)  # role, label, position
    found[0, 0, of_slot_0] = found[0, 1, of_slot_1] = 0.9
    return found


def test_where_the_slot_tells_to_which_position_a_role_attends_each_position_has_a_row() -> None:
    assert rows("query", attention(2, 0)) == {
        ("query", "position 2"): Condition("slot", "second", (0,)),
        ("query", "position 0"): Condition("slot", "second", (1,)),
    }


def test_a_role_that_attends_to_one_position_whatever_the_slot_has_one_row() -> None:
    assert rows("query", attention(2, 2)) == {("query", "position 2"): Condition("slot", "second", (0, 1))}


def test_rows_do_not_take_chains_on_which_a_path_is_on_nor_look_ahead() -> None:
    left = torch.tensor([[True, False], [False, True]])  # a path is on where the second stands at slot 1
    assert rows("query", attention(2, 0), left) == {}
    assert rows("query", attention(2, 5)) == {}


def test_a_label_that_tells_where_the_role_itself_stands_tells_nothing_of_content() -> None:
    positions = torch.tensor([[[0, 2], [1, 3], [4, 5]], [[2, 0], [3, 1], [4, 5]]])  # one and second share their slot
    slots = torch.tensor([[[0, 1], [0, 1], [0, 1]], [[1, 0], [1, 0], [0, 1]]])
    roles = Roles(("one", "second", "query"), positions, {"slot": slots})
    found = torch.zeros(3, 2, 6)
    found[0, 0, 1] = found[0, 1, 0] = 0.9
    assert rows("second", found, roles=roles) == {}
    assert len(rows("query", found, roles=roles)) == 2


@pytest.fixture
def known_model(random_model, chains):
    """A model that is known as it is now, so that nothing is checked while it is ablated."""
    check_state(random_model)
    layers(random_model, chains.examples(16, seed=0))
    return random_model


def test_planted_rows_to_fixed_positions_are_seen_in_a_models_attention(known_model, chains) -> None:
    examples, head = chains.examples(16, seed=0), Head(1, 0)
    where = {  # of roles that stand at the same slot the first is named
        ("query", "position 2"): Condition("slot", "pair1.first", (0,)),
        ("query", "position 5"): Condition("slot", "pair1.first", (1,)),
    }
    left = {head: {"query": torch.ones_like(examples.roles["query"], dtype=torch.bool)}}
    assert observed_positions(known_model, examples, left, "slot", 0.5) == {head: []}
    with ablated(known_model, Circuit({head: OneHot([*where], where=where)}), examples.roles):
        assert observed_positions(known_model, examples, left, "slot", 0.5) == {head: [where]}
    single = dict([*where.items()][:1])
    with ablated(known_model, Circuit({head: OneHot([*single], where=single)}), examples.roles):
        assert observed_positions(known_model, examples, left, "slot", 0.5) == {head: [single]}
