import torch

from circuits.attention import roles_or_positions
from circuits.ground_truth.compile import compile_circuit
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit


def test_a_head_that_follows_roles_gives_little_to_any_one_position():
    task = ChainTask(n_steps=1, n_chains=4)
    model = compile_circuit(minimal_circuit(1), task)
    to_roles, to_position = roles_or_positions(model, task.examples(600, seed=0), "query")
    assert to_roles[1, 0, task.roles.index("pair1.second")] > 0.99
    assert to_position[1, 0] < 0.35  # the pair stands at each of four positions as often


def test_a_head_that_looks_at_a_position_gives_little_to_any_one_role():
    task = ChainTask(n_steps=1, n_chains=4)
    model = compile_circuit(minimal_circuit(1), task)

    def to_the_third(pattern):
        return torch.zeros_like(pattern).index_fill(-1, torch.tensor([2]), 1.0)

    model.blocks[1].attn.hook_pattern.forward = to_the_third
    to_roles, to_position = roles_or_positions(model, task.examples(600, seed=0), "query")
    assert to_position[1, 0] == 1
    assert to_roles[1, 0].max() < 0.35
