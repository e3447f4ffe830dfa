import torch

from circuits import Circuit, Examples, FixedPattern, Head, OneHot, Roles
from circuits.circuit import AttentionPath
from circuits.flow.flow_check import FlowCheck, flow_check
from circuits.mechanisms import Condition, Identity
from circuits.task import Layout
from tests.handmade import ChainTask
from tests.repeated import RepeatedTokens

ASKED = {"L1H0": {"query": "pair1.second"}, "L3H0": {"query": "pair2.second"}}
TWO = Circuit({"L0H0": "previous", "L2H0": "identity", **ASKED})


def test_every_symbol_arrives_with_the_layer_that_brings_it():
    found = flow_check(TWO, ChainTask(2))
    assert found.verdict.decision == "holds"
    assert found.known_at == {"x1": 1, "x2": 3}
    assert FlowCheck.model_validate_json(found.model_dump_json()) == found


def test_heads_that_nobody_tells_where_to_look_are_against_the_first_assumption():
    found = flow_check(TWO.with_head(Head(0, 0), Identity()), ChainTask(2))
    assert found.known_at == {"x1": None, "x2": None}
    assert found.forbidden == (
        AttentionPath(Head(1, 0), "query", "pair1.second"),
        AttentionPath(Head(3, 0), "query", "pair2.second"),
    )


def test_a_path_that_brings_nothing_new_is_named():
    joined = TWO.with_head(Head(0, 0), OneHot({f"pair{k}.second": f"pair{k}.first" for k in (1, 2)}))
    found = flow_check(joined.with_head(Head(2, 0), OneHot({"query": "pair1.first"})), ChainTask(2))
    assert found.redundant == (AttentionPath(Head(2, 0), "query", "pair1.first"),)


def test_a_path_that_carries_on_some_slots_only_what_another_carries_on_others_is_not_redundant():
    task = ChainTask(1, n_chains=4)
    ends = ("pair1.second", "pair1.first")
    slots = {
        head: OneHot([ends], where={ends: Condition("slot", ends[1], own)}) for head, own in enumerate([(0, 1), (2, 3)])
    }
    fetch = {Head(2, 0): OneHot({"query": "pair1.second"})}
    both = flow_check(Circuit({Head(layer, 0): own for layer, own in slots.items()} | fetch), task)
    assert both.verdict.decision == "holds"
    assert both.redundant == both.forbidden == ()
    one = flow_check(Circuit({Head(0, 0): slots[0]} | fetch), task)
    assert one.verdict.decision == "fails"
    assert one.known_in == {"x1": 0.5}
    assert one.forbidden == ()  # allowed on two slots


def test_a_circuit_without_paths_carries_nothing():
    found = flow_check(Circuit({Head(0, 0): Identity()}), ChainTask(2))
    assert found.known_at == {"x1": None, "x2": None}
    assert found.known_in == {"x1": 0.0, "x2": 0.0}
    assert found.verdict.decision == "fails"


def test_a_task_that_does_not_say_what_its_roles_know_has_no_answer():
    assert flow_check(TWO, RepeatedTokens()) is None


def test_what_one_instance_needs_may_wait_at_a_position_of_another_one():
    """Both queries look at position 3: the symbol of slot 1 stands there, and that of slot 0 is copied to it."""
    task, looks = ChainTask(1, n_chains=2), OneHot({"query": "position 3"})
    assert flow_check(Circuit({"L1H0": looks}), task).known_in == {"x1": 0.5}
    copied = FixedPattern(torch.eye(6)[[0, 1, 2, 1, 4, 5]])
    assert flow_check(Circuit({"L0H0": copied, "L1H0": looks}), task).known_in == {"x1": 1.0}


def test_a_head_that_looks_at_the_first_position_carries_what_is_there_however_it_is_said():
    class First:
        roles, loss_components, output_roles, read_at = ("start", "end"), ("a",), ("end",), {"a": "end"}
        layout = Layout({"start": frozenset({"a", "x"}), "end": frozenset({"x"})})

        def examples(self, n, seed):
            tokens = torch.randint(10, (n, 4), generator=torch.Generator().manual_seed(seed))
            return Examples(
                tokens, tokens[:, 0], Roles.of({"start": torch.zeros(n).long(), "end": torch.full((n,), 3)})
            )

        def losses(self, outputs, examples):
            return outputs[:, -1, :1]

    column = FixedPattern(torch.nn.functional.one_hot(torch.zeros(4).long(), 4).float(), "map")
    for head in ({"end": "position 0"}, {"end": "first"}, "first", column):
        assert flow_check(Circuit({"L0H0": head}), First()).known_in == {"a": 1.0}
