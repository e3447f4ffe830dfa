import pytest
import torch

from circuits import Circuit, FixedPattern, Head, OneHot
from circuits.checks.experiment import Experiment
from circuits.checks.paper_protocol import paper_protocol
from circuits.circuit import AttentionPath
from circuits.flow.fixed_paths import fixed_paths, paths_on_average, with_fixed_paths
from circuits.flow.flow_check import flow_check
from circuits.ground_truth import compile_circuit
from circuits.mechanisms import Condition
from circuits.roles import Roles
from tests.handmade import ChainTask, walking_circuit

TASK = ChainTask(2, n_chains=4)
ROLES = TASK.examples(256, seed=0).roles
N = TASK.examples(1, seed=0).inputs.shape[1]
JOINED = {"pair1.second": "pair1.first", "pair2.second": "pair2.first"}
FETCH = {Head(1, 0): OneHot({"query": "pair1.second"}), Head(2, 0): OneHot({"query": "pair2.second"})}


def to_the_one_before(share: float) -> FixedPattern:
    """Every position gives a share of its attention to the one before, and the rest to itself."""
    return FixedPattern(share * torch.eye(N).roll(-1, 1).tril() + (1 - share) * torch.eye(N))


@pytest.mark.parametrize(("share", "rows"), [(1.0, JOINED), (0.5, JOINED), (0.4, None)])
def test_a_pattern_leads_along_a_path_to_which_it_gives_half_of_its_attention(share, rows):
    circuit = Circuit({Head(0, 0): to_the_one_before(share), **FETCH})
    own = OneHot(rows) if rows else circuit.heads[Head(0, 0)]
    assert with_fixed_paths(circuit, fixed_paths(circuit, ROLES)).heads[Head(0, 0)] == own


def test_a_pattern_that_joins_the_pairs_of_one_slot_has_a_path_on_this_slot():
    joins_slot_1 = torch.eye(N)
    for block in (0, 2 * TASK.n_chains):  # the pair in slot 1 of a block stands at its positions 2 and 3
        joins_slot_1[block + 3] = torch.eye(N)[block + 2]
    circuit = Circuit({Head(0, 0): FixedPattern(joins_slot_1), **FETCH})
    rows = {ends: Condition("slot", ends[1], (1,)) for ends in JOINED.items()}
    assert with_fixed_paths(circuit, fixed_paths(circuit, ROLES)).heads[Head(0, 0)] == OneHot(JOINED, where=rows)
    found = flow_check(circuit, TASK)
    assert "L0H0 pair1.second -> pair1.first on slot 1" in found.fixed_paths
    assert found.known_at == {"x1": 1, "x2": 2}
    assert found.verdict.decision == "fails"
    assert {slot: share.mean for slot, share in found.known_by_label["x1"].means.items()} == {0: 0, 1: 1, 2: 0, 3: 0}
    assert found.known_in["x1"] == pytest.approx(1 / 4)  # one of four slots
    assert found.known_in["x2"] == pytest.approx(1 / 16, abs=0.02)  # pair 1 and pair 2 both in slot 1


def test_the_paper_reads_paths_from_averages_over_all_slots():
    joins = torch.eye(N)
    for position in (3, 5, 7):  # second members of pair 2 in slots 1, 2 and 3, and none of pair 1
        joins[position] = torch.eye(N)[position - 1]
    circuit = Circuit({Head(0, 0): FixedPattern(joins)})
    joined = AttentionPath(Head(0, 0), "pair2.second", "pair2.first")
    assert paths_on_average(circuit, ROLES) == {joined: None}  # 0.75 on average
    assert fixed_paths(circuit, ROLES) == {joined: Condition("slot", "pair2.first", (1, 2, 3))}
    joins[5] = torch.eye(N)[5]
    joins[7] = torch.eye(N)[7]
    assert paths_on_average(Circuit({Head(0, 0): FixedPattern(joins)}), ROLES) == {}  # 0.25


def test_a_position_that_all_attend_to_is_a_path_within_the_first_pair_only():
    sink = torch.zeros(N, N)
    sink[:, 0] = 1
    circuit = Circuit({Head(0, 0): FixedPattern(sink)})
    joined = AttentionPath(Head(0, 0), "pair2.second", "pair2.first")  # and none to pair 2 from all other roles
    assert fixed_paths(circuit, ROLES) == {joined: Condition("slot", "pair2.first", (0,))}


def test_a_position_that_holds_the_role_in_some_examples_only_is_no_path():
    weights = torch.eye(N)
    weights[-1] = torch.eye(N)[1]  # the first query, which asks in every example for another slot
    circuit = Circuit({Head(0, 0): FixedPattern(weights)})
    assert with_fixed_paths(circuit, fixed_paths(circuit, ROLES)) == circuit


def test_what_stands_behind_in_some_examples_and_what_is_the_same_position_is_no_path():
    at = torch.tensor([[[0], [1], [1], [2]], [[0], [2], [2], [1]], [[0], [1], [1], [2]]])
    roles = Roles(("a", "b", "twin", "c"), at)  # b stands behind c in the second example
    to_the_first = torch.zeros(3, 3)
    to_the_first[:, 0] = 1
    looks_back = FixedPattern(torch.eye(3).roll(-1, 1).tril() + torch.diag(torch.tensor([1.0, 0.0, 0.0])))
    circuit = Circuit(
        {Head(0, 0): looks_back, Head(1, 0): FixedPattern(to_the_first), Head(2, 0): FixedPattern(torch.eye(3))}
    )
    assert {str(path) for path in fixed_paths(circuit, roles)} == {"L0H0 b -> a", "L1H0 b -> a", "L1H0 c -> a"}
    for mechanism in with_fixed_paths(circuit, fixed_paths(circuit, roles)).heads.values():
        mechanism.pattern(roles, 3)


def test_what_a_fixed_pattern_joins_is_known_above_it():
    found = flow_check(Circuit({Head(0, 0): to_the_one_before(1.0), **FETCH}), TASK)
    assert found.known_at == {"x1": 1, "x2": 2}
    assert {*found.fixed_paths} == {f"L0H0 {source} -> {target}" for source, target in JOINED.items()}


def test_appendix_e_takes_a_fixed_pattern_for_the_paths_that_it_leads_along():
    task, circuit = ChainTask(2), walking_circuit(2)
    changed = circuit.with_head(Head(0, 0), FixedPattern(torch.eye(task.n_positions).roll(-1, 1).tril()))
    found = paper_protocol(Experiment(compile_circuit(circuit, task), task, changed, n_examples=64))
    assert found.circuit.heads[Head(0, 0)] == OneHot(JOINED)
    assert found.combined.loss.mean < 0.01
