import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput, Identity, OneHot, Previous, Roles, Uniform

# One example of four positions: the query at 3 sees the pair at 0 and 1.
ROLES = Roles(("query", "first", "second"), torch.tensor([[[3], [0], [1]]]))


def test_uniform_attends_equally_to_all_that_the_mask_allows():
    expected = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]])
    assert torch.allclose(Uniform().pattern(ROLES, 3)[0], expected)


def test_identity_attends_to_oneself():
    assert Identity().pattern(ROLES, 2)[0].tolist() == [[1, 0], [0, 1]]


def test_previous_attends_one_back_and_position_zero_to_itself():
    assert Previous().pattern(ROLES, 3)[0].tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_previous_on_a_single_position_attends_to_itself():
    assert Previous().pattern(ROLES, 1)[0].tolist() == [[1]]


def test_one_hot_is_zero_but_for_a_one_on_its_paths():
    pattern = OneHot({"query": "second", "second": "first"}).pattern(ROLES, 4)[0]
    assert pattern.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


def test_rows_on_no_path_follow_elsewhere():
    identity = OneHot({"query": "first"}, elsewhere="identity").pattern(ROLES, 4)[0]
    assert identity.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    uniform = OneHot({"query": "first"}, elsewhere="uniform").pattern(ROLES, 4)[0]
    assert uniform[1].tolist() == [0.5, 0.5, 0, 0]


def test_a_row_taken_from_its_path_becomes_uniform_and_the_others_stay():
    mechanism = OneHot({"query": "second", "second": "first"}).with_row("query", "uniform")
    pattern = mechanism.pattern(ROLES, 4)[0]
    assert pattern[3].tolist() == [0.25] * 4
    assert pattern[1].tolist() == [1, 0, 0, 0]
    assert mechanism.paths == (("second", "first"),)


def test_each_chain_attends_within_itself():
    roles = Roles(("query", "first"), torch.tensor([[[2, 3], [1, 0]]]))
    pattern = OneHot({"query": "first"}).pattern(roles, 4)[0]
    assert pattern[2].tolist() == [0, 1, 0, 0]
    assert pattern[3].tolist() == [1, 0, 0, 0]


def test_two_roles_at_one_position_may_not_want_different_rows():
    roles = Roles(("a", "b", "c"), torch.tensor([[[2], [2], [0]]]))
    with pytest.raises(BadInput, match="same position"):
        OneHot({"a": "c", "b": "identity"}).pattern(roles, 3)


def test_a_one_hot_head_needs_a_path():
    with pytest.raises(BadInput, match="at least one path"):
        OneHot({})


@given(st.integers(1, 12), st.sampled_from([Uniform(), Identity(), Previous()]))
def test_simple_patterns_are_causal_and_every_row_sums_to_one(n, mechanism):
    pattern = mechanism.pattern(ROLES, n)[0]
    assert torch.equal(pattern, pattern.tril())
    assert torch.allclose(pattern.sum(dim=-1), torch.ones(n))
