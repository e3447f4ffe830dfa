import pytest
import torch
from safetensors.torch import save

from circuits import AttentionPath, Circuit, FixedPattern, Head, OneHot, Roles, load_circuit, save_circuit
from circuits.circuit_file import dump_circuit, pack_patterns, parse_circuit
from circuits.mechanisms import Condition, Previous, Uniform
from tests.refusals import assert_refused

ROLES = Roles(("query", "one", "second"), torch.tensor([[[3], [0], [1]]]))
TEXT = """\
name: induction
heads:
  L0H0: previous      # a comment
  L1H0:
    query: second
    second: one
  L2H1: uniform
"""


def test_yaml_that_a_person_would_write_is_read():
    circuit = parse_circuit(TEXT)
    assert circuit.name == "induction"
    assert circuit.heads == {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "second", "second": "one"}),
        Head(2, 1): Uniform(),
    }


def test_paths_are_listed_from_the_lowest_layer_up_and_a_previous_head_is_one():
    assert [str(path) for path in parse_circuit(TEXT).paths] == [
        "L0H0 * -> previous",
        "L1H0 query -> second",
        "L1H0 second -> one",
    ]


def test_the_heads_of_a_circuit_do_not_change_and_only_those_are_in_it():
    heads = Circuit({"L0H0": "uniform"}).heads
    assert "L0H0" in heads
    assert Head(0, 0) in heads
    assert "L0H1" not in heads
    assert "no head" not in heads
    assert not any(hasattr(heads, name) for name in ("update", "pop", "__setitem__", "clear"))


def test_the_order_of_rows_and_heads_and_the_name_do_not_count_for_equality():
    one = Circuit({Head(0, 0): OneHot({"a": "b", "c": "d"}), Head(1, 0): Uniform()}, name="one")
    two = Circuit({Head(1, 0): Uniform(), Head(0, 0): OneHot({"c": "d", "a": "b"})}, name="two")
    assert one == two
    assert hash(one) == hash(two)


def test_without_takes_one_path_away_and_leaves_the_rest():
    circuit = parse_circuit(TEXT)
    path = AttentionPath(Head(1, 0), "query", "second")
    without = circuit.without(path, "identity")
    assert path not in without.paths
    assert without.heads[Head(1, 0)] == OneHot({"query": "identity", "second": "one"})
    assert circuit.paths[1] == path
    assert circuit.retargeted(path, "one").heads[Head(1, 0)] == OneHot({"query": "one", "second": "one"})
    assert circuit.without(circuit.paths[0]).heads[Head(0, 0)] == Uniform()  # a previous head is one path


def test_a_path_knows_its_condition_and_whether_it_joins_roles():
    where = {("query", f"position {slot}"): Condition("slot", "one", (slot,)) for slot in (0, 1)}
    on = {("query", "one"): Condition("slot", "one", (2,))}
    circuit = Circuit({"L0H0": "previous", "L0H1": OneHot([*where, *on], where=where | on), "L1H0": "uniform"})
    assert [(str(path), path.joins_roles) for path in circuit.paths] == [
        ("L0H0 * -> previous", False),
        ("L0H1 query -> one", True),
    ]
    assert circuit.paths[1].condition == on["query", "one"]
    assert circuit.heads_with_paths == (Head(0, 0), Head(0, 1))
    assert [str(path) for path in circuit.removable[2:]] == ["L0H1 query -> position 0", "L0H1 query -> position 1"]
    assert ("query", "uniform") in circuit.without(circuit.removable[2]).heads[Head(0, 1)].rows
    assert [head for head, own in circuit.heads.items() if own.varies] == [Head(0, 1)]


def test_a_digest_is_the_same_in_every_process():
    made = Circuit({Head(0, 1): OneHot({"query": "one", "a": "b"}), Head(2, 0): Uniform()})
    assert made.digest == "46be9fd6aa2d1b02cd56e93313ad8bed3f52fdd5993801fe3d6315bd46084976"


def test_without_an_unknown_path_is_an_error():
    unknown = AttentionPath(Head(5, 0), "query", "second")
    assert_refused("no path L5H0 query -> second", parse_circuit(TEXT).without, unknown)


def fixed_circuit():
    mean = FixedPattern(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), "mean")
    where = {
        ("query", "one"): Condition("slot", "one", (0, 2)),
        ("query", "second"): Condition("slot", "second", (1,)),
        ("one", "one"): Condition("position", "query", (3,)),
    }
    one_hot = OneHot([*where, ("query", "position 0")], mean, where)
    return Circuit({Head(0, 0): mean, Head(1, 0): one_hot, Head(1, 1): Uniform()}, name="fixed")


def test_a_row_on_some_chains_is_written_as_a_person_would():
    text = dump_circuit(fixed_circuit())
    one, second = "- to: one\n      slot:\n      - 0\n      - 2\n", "- to: second\n      slot:\n      - 1\n"
    assert f"query:\n    {one}    - position 0\n    {second}" in text
    flow = "heads:\n  L1H0:\n    query: {to: one, slot: [2, 0]}\n"
    assert parse_circuit(flow).heads[Head(1, 0)] == OneHot(
        {"query": "one"}, where={("query", "one"): Condition("slot", "one", (0, 2))}
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b"{}"), "not a file of fixed patterns"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: path.write_bytes(pack_patterns(Circuit({"L0H0": torch.eye(2)}))), "other fixed patterns"),
        (lambda path: path.write_bytes(save({"L0H0": -torch.eye(2)})), "not a weight"),
        (lambda path: path.write_bytes(save({"one": torch.eye(2)})), "'one' is not a head"),
    ],
)
def test_other_or_damaged_fixed_patterns_are_refused(tmp_path, damage, message):
    save_circuit(fixed_circuit(), tmp_path / "one.yaml")
    patterns = tmp_path / "one.patterns.safetensors"
    damage(patterns)
    assert str(patterns) in assert_refused(message, load_circuit, tmp_path / "one.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file is empty"),
        ("- a\n- b\n", "expected a mapping"),
        ("name: x\n", "'heads' is missing"),
        ("heads:\n  L0H0: uniform\n  L0H0: identity\n", "line 3: 'L0H0' is given twice"),
        ("heads:\n  L00H0: uniform\n  L0H0: identity\n", "line 3: L0H0 is given twice"),
        ("heads:\n  L1H0:\n    query: one\n    query: second\n", "line 4: 'query' is given twice"),
        ("heads:\n  L0: uniform\n", "line 2: 'L0' is not a head"),
        ("heads:\n  L0H0: sideways\n", "line 2: L0H0 is 'sideways'"),
        ("heads:\n  L0H0: [uniform]\n", "line 2: L0H0 is a list"),
        ("heads:\n  L0H0:\n    query: one\n    elsewhere: nowhere\n", "elsewhere is 'nowhere'"),
        ("heads: {L0H0: uniform\n", "not YAML"),
        ("heads:\n  L0H0: &a uniform\n  L1H0: *a\n", "aliases are not allowed"),
        ("heads:\n  L0H0: mean\n", "line 2: L0H0 is 'mean', but its numbers are in no file"),
        ("patterns: here\nheads: {}\n", "line 1: expected the file of the fixed patterns"),
        ("patterns: {file: ../a, sha256: 0}\nheads: {}\n", "line 1: '../a'; expected the name of a file"),
        ("heads:\n  L0H0:\n    query: {slot: [0]}\n", "line 3: expected 'to' and one condition"),
        ("heads:\n  L0H0:\n    query: {to: one, slot: 0}\n", "line 3: slot is not a list"),
        ("heads:\n  L0H0:\n    query: {to: one, slot: []}\n", "line 3: a condition on no slot"),
        ("heads:\n  L0H0:\n    query: {to: one, slot: [-1]}\n", "line 3: slot '-1'; expected whole numbers"),
        ("heads:\n  L0H0:\n    query: {to: one, slot: [010]}\n", "line 3: slot '010'; expected whole numbers"),
        ("colour: red\nheads: {}\n", "line 1: unknown key 'colour'"),
        ("heads:\n  ? [a]\n  : uniform\n", "line 2: expected plain text"),
    ],
)
def test_bad_yaml_is_one_clear_line_that_names_the_place(tmp_path, text, message):
    path = tmp_path / "circuit.yaml"
    path.write_text(text)
    assert str(path) in assert_refused(message, load_circuit, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heads:\n  L9H0: uniform\n", "line 2: L9H0 does not exist: the model has layers 0 to 1"),
        ("heads:\n  L0H7: uniform\n", "line 2: L0H7 does not exist: a layer has heads 0 to 1"),
        ("heads:\n  L0H0:\n    query: third\n", "line 3: L0H0 names the unknown role 'third'"),
        ("heads:\n  L0H0:\n    third: query\n", "line 3: L0H0 names the unknown role 'third'"),
        ("heads:\n  L0H0:\n    query: {to: one, slot: [0]}\n", "line 3: L0H0: unknown group 'slot'"),
        ("heads:\n  L0H0:\n    query: {to: one, at: end, position: [0]}\n", "line 3: L0H0: unknown role 'end'"),
        ("heads:\n  L0H0:\n    one: query\n", "line 3: L0H0 one -> query is against the causal mask"),
    ],
)
def test_a_circuit_for_another_model_is_refused_with_its_line(text, message):
    assert_refused(message, parse_circuit(text).check, ROLES, n_layers=2, n_heads=2)


def test_heads_and_mechanisms_may_be_written_as_in_a_circuit_file():
    pattern = torch.eye(4)
    short = Circuit({"L0H0": "previous", "L1H0": {"query": "pair1.second"}, "L2H1": pattern})
    full = {Head(0, 0): Previous(), Head(1, 0): OneHot({"query": "pair1.second"}), Head(2, 1): FixedPattern(pattern)}
    assert short == Circuit(full)
    assert_refused("L0H0 is 'sideways'", Circuit, {"L0H0": "sideways"})
    assert_refused("'one' is not a head", Circuit, {"one": "uniform"})
