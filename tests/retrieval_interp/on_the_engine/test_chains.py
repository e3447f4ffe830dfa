"""The retrieval problem over tokens, and its minimal circuit, which is compiled."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.ground_truth import compile_circuit, solves
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit
from retrieval_interp.theory.circuit_flow import circuit_flow
from tests.refusals import assert_refused


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_a_chain_is_cut_into_pairs_that_share_a_symbol_and_no_symbol_stands_in_two_chains(n_steps, n_chains, seed):
    task = ChainTask(n_steps, n_chains)
    examples = task.examples(3, seed)
    at = {role: examples.inputs.gather(1, examples.roles[role]) for role in task.roles}
    assert torch.equal(at["query"], at["pair1.first"])
    for k in range(1, n_steps + 1):
        assert torch.equal(at[f"pair{k}.second"], examples.targets[:, k - 1])
        if k < n_steps:
            assert torch.equal(at[f"pair{k}.second"], at[f"pair{k + 1}.first"])
        assert all(row.unique().numel() == n_chains for row in at[f"pair{k}.second"])
    positions = examples.roles.positions.flatten(1).sort(dim=1).values
    assert torch.equal(positions, torch.arange(task.n_positions).expand(3, -1))


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 7, 8, 15])
def test_the_minimal_circuit_solves_its_task_in_the_fewest_layers(n_steps):
    task, circuit = ChainTask(n_steps), minimal_circuit(n_steps)
    fewest = 1 + math.ceil(math.log2(n_steps + 1))
    flow = circuit_flow(circuit, task.layout)
    assert [f"x{n_steps}" in known["query"] for known in flow.known].index(True) == fewest
    assert all(carried.allowed and carried.new for carried in flow.carried)
    assert all(not solves(circuit.without(path, "zero"), task) for path in circuit.paths)
    if n_steps < 8:
        model, examples = compile_circuit(circuit, task), task.examples(16, seed=0)
        assert model.cfg.n_layers == fewest
        with torch.no_grad():
            assert task.losses(model(examples.inputs), examples).mean() < 1e-3


def test_no_steps_have_no_circuit():
    assert_refused("0 steps; expected at least 1", minimal_circuit, 0)
