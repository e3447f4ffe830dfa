"""Role names permuted within each example."""

import torch

from circuits import Examples, Roles, discover
from circuits.null_models.permuted_roles import PermutedRoles, null_loss, permuted
from tests.repeated import RepeatedTokens


def test_every_example_keeps_its_positions_and_the_roles_that_are_read_keep_theirs(chains):
    roles = chains.examples(64, seed=0).roles
    other = permuted(roles, ("query",), seed=1)
    assert torch.equal(other["query"], roles["query"])
    assert torch.equal(other.positions.flatten(1).sort().values, roles.positions.flatten(1).sort().values)
    assert not torch.equal(other["pair1.second"], roles["pair1.second"])
    different = (other["pair1.second"] != roles["pair1.second"]).float().mean()
    assert 0.6 < different < 0.95  # one of four places of its block is its own


def test_roles_that_all_chains_share_stay_in_place():
    positions = torch.tensor([[[0, 1], [2, 3], [4, 4], [5, 5]]]).repeat(8, 1, 1)
    positions[1::2, 0] = positions[1::2, 0].flip(1)

    class Sharing(RepeatedTokens):
        def examples(self, n, seed):
            inputs = torch.zeros(8, 6, dtype=torch.long)
            return Examples(inputs, inputs, Roles(("a", "b", "line", "answer"), positions))

    roles = PermutedRoles(Sharing()).examples(8, seed=0).roles
    assert (roles["line"] == 4).all()
    assert not torch.equal(roles.positions, positions)


def test_labels_move_with_their_positions(chains):
    roles = chains.examples(16, seed=0).roles
    other = permuted(roles, ("query",), seed=1)
    label = dict(zip(roles.positions[0].flatten().tolist(), roles.groups["slot"][0].flatten().tolist(), strict=True))
    moved = zip(other.positions[0].flatten().tolist(), other.groups["slot"][0].flatten().tolist(), strict=True)
    assert all(label[position] == slot for position, slot in moved)


def test_paths_between_blocks_stay_allowed_by_the_mask(chains):
    examples = PermutedRoles(chains).examples(64, seed=0)
    assert {("query", "pair1.second"), ("pair1.second", "pair2.first")} <= {*examples.roles.pairs}


def test_roles_that_stand_apart_change_places_with_all_others():
    positions = torch.tensor([[[0], [1], [2], [3]]]).repeat(32, 1, 1)
    roles = permuted(Roles(("a", "b", "c", "answer"), positions), ("answer",), seed=0)
    assert (roles["answer"] == 3).all()
    assert len(roles["a"].unique()) == 3


def test_a_circuit_whose_paths_are_real_is_not_found_with_permuted_names(model, task):
    found = discover(model, task, n_examples=64)
    assert found.combined.mean < 0.001
    assert null_loss(model, task, found, n_examples=64).mean > 0.1
