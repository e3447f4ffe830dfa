from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from circuits import (
    AttentionPath,
    BadInput,
    Circuit,
    Condition,
    FixedPattern,
    Head,
    Identity,
    OneHot,
    Previous,
    Resample,
    Roles,
    Uniform,
    load_circuit,
    save_circuit,
)
from circuits.circuit_file import dump_circuit, parse_circuit
from circuits.pattern_file import save_patterns

ROLES = Roles(("query", "first", "second"), torch.tensor([[[3], [0], [1]]]))
TEXT = """\
name: induction
heads:
  L0H0: previous      # a comment
  L1H0:
    query: second
    second: first
  L2H1: uniform
"""


def test_yaml_that_a_person_would_write_is_read():
    circuit = parse_circuit(TEXT)
    assert circuit.name == "induction"
    assert circuit.heads == {
        Head(0, 0): Previous(),
        Head(1, 0): OneHot({"query": "second", "second": "first"}),
        Head(2, 1): Uniform(),
    }


def test_the_hypothesis_of_the_readme_is_read():
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    circuit = parse_circuit(text.partition("```yaml\n")[2].partition("```")[0], "README.md")
    assert [str(head) for head in circuit.heads] == ["L0H0", "L1H0", "L2H0"]


def test_a_head_whose_rows_lead_nowhere_is_read_back_too():
    circuit = Circuit({Head(0, 0): OneHot({"query": "uniform"}, "identity")})
    assert circuit.paths == ()
    assert parse_circuit(dump_circuit(circuit)) == circuit


def test_paths_are_listed_from_the_lowest_layer_up_and_a_previous_head_is_one():
    assert [str(path) for path in parse_circuit(TEXT).paths] == [
        "L0H0 * -> previous",
        "L1H0 query -> second",
        "L1H0 second -> first",
    ]


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
    assert without.heads[Head(1, 0)] == OneHot({"query": "identity", "second": "first"})
    assert circuit.paths[1] == path


def test_without_a_previous_head_makes_the_whole_head_simple():
    circuit = parse_circuit(TEXT)
    assert circuit.without(circuit.paths[0]).heads[Head(0, 0)] == Uniform()


def test_without_an_unknown_path_is_an_error():
    with pytest.raises(BadInput, match="no path L5H0 query -> second"):
        parse_circuit(TEXT).without(AttentionPath(Head(5, 0), "query", "second"))


def test_difference_names_the_heads_and_both_opinions():
    one = Circuit({Head(0, 0): Uniform(), Head(1, 0): Identity()})
    two = Circuit({Head(0, 0): Uniform(), Head(2, 0): Identity()})
    assert one.difference(two) == {Head(1, 0): (Identity(), None), Head(2, 0): (None, Identity())}


def test_a_saved_circuit_is_read_back_equal(tmp_path):
    circuit = parse_circuit(TEXT).with_head(Head(2, 1), Resample())
    save_circuit(circuit, str(tmp_path / "circuit.yaml"))
    assert load_circuit(str(tmp_path / "circuit.yaml")) == circuit


def fixed_circuit():
    mean = FixedPattern(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), "mean")
    where = {
        ("query", "first"): Condition("slot", "first", (0, 2)),
        ("query", "second"): Condition("slot", "second", (1,)),
        ("first", "first"): Condition("position", "query", (3,)),
    }
    one_hot = OneHot([*where, ("query", "position 0")], mean, where)
    return Circuit({Head(0, 0): mean, Head(1, 0): one_hot, Head(1, 1): Uniform()}, name="fixed")


def test_fixed_patterns_are_saved_beside_their_circuit_and_read_back(tmp_path):
    circuit = fixed_circuit()
    save_circuit(circuit, tmp_path / "one.yaml")
    assert {path.name for path in tmp_path.iterdir()} == {"one.yaml", "one.patterns.safetensors"}
    assert load_circuit(tmp_path / "one.yaml") == circuit


def test_a_row_on_some_chains_is_written_as_a_person_would():
    text = dump_circuit(fixed_circuit())
    first, second = "- to: first\n      slot:\n      - 0\n      - 2\n", "- to: second\n      slot:\n      - 1\n"
    assert f"query:\n    {first}    - position 0\n    {second}" in text
    flow = "heads:\n  L1H0:\n    query: {to: first, slot: [2, 0]}\n"
    assert parse_circuit(flow).heads[Head(1, 0)] == OneHot(
        {"query": "first"}, where={("query", "first"): Condition("slot", "first", (0, 2))}
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(b"{}"), "not a file of fixed patterns"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: save_patterns(Circuit({Head(0, 0): FixedPattern(torch.eye(2))}), path), "other fixed patterns"),
        (lambda path: path.write_bytes(save({"L0H0": -torch.eye(2)})), "not a weight"),
        (lambda path: path.write_bytes(save({"first": torch.eye(2)})), "'first' is not a head"),
    ],
)
def test_other_or_damaged_fixed_patterns_are_refused(tmp_path, damage, message):
    save_circuit(fixed_circuit(), tmp_path / "one.yaml")
    patterns = tmp_path / "one.patterns.safetensors"
    damage(patterns)
    with pytest.raises(BadInput, match=message) as caught:
        load_circuit(tmp_path / "one.yaml")
    assert str(patterns) in str(caught.value)


roles = st.sampled_from(["query", "pair1.first", "pair1.second", "yes", "3", "a: b", "x # y"])
conditions = st.tuples(st.sampled_from(["slot", "a: b"]), roles, st.lists(st.integers(0, 9), min_size=1))
mechanisms = st.one_of(
    st.sampled_from([Uniform(), Identity(), Previous()]),
    st.tuples(
        st.dictionaries(roles, roles, min_size=1),
        st.sampled_from(["zero", "uniform", "identity"]),
        st.dictionaries(roles, conditions),
    ),
)


@pytest.mark.slow
@given(st.dictionaries(st.builds(Head, st.integers(0, 99), st.integers(0, 99)), mechanisms), st.text("ab:\n#'\"é"))
def test_any_circuit_survives_its_yaml(heads, name):
    made = {}
    for head, said in heads.items():
        made[head] = said
        if isinstance(said, tuple):
            rows, elsewhere, where = said
            there = {
                (role, rows[role]): Condition(group, at, tuple(labels))
                for role, (group, at, labels) in where.items()
                if role in rows
            }
            made[head] = OneHot(rows, elsewhere, there)
    circuit = Circuit(made, name=name)
    again = parse_circuit(dump_circuit(circuit))
    assert again == circuit
    assert again.name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file is empty"),
        ("- a\n- b\n", "expected a mapping"),
        ("name: x\n", "'heads' is missing"),
        ("heads:\n  L0H0: uniform\n  L0H0: identity\n", "line 3: 'L0H0' is given twice"),
        ("heads:\n  L00H0: uniform\n  L0H0: identity\n", "line 3: L0H0 is given twice"),
        ("heads:\n  L1H0:\n    query: first\n    query: second\n", "line 4: 'query' is given twice"),
        ("heads:\n  L0: uniform\n", "line 2: 'L0' is not a head"),
        ("heads:\n  L0H0: sideways\n", "line 2: L0H0 is 'sideways'"),
        ("heads:\n  L0H0: [uniform]\n", "line 2: L0H0 is a list"),
        ("heads:\n  L0H0: {elsewhere: zero}\n", "line 2: a one-hot head needs"),
        ("heads:\n  L0H0:\n    query: first\n    elsewhere: nowhere\n", "elsewhere is 'nowhere'"),
        ("heads: {L0H0: uniform\n", "not YAML"),
        ("heads:\n  L0H0: &a uniform\n  L1H0: *a\n", "aliases are not allowed"),
        ("heads:\n  L0H0: mean\n", "line 2: L0H0 is 'mean', but its numbers are in no file"),
        ("patterns: here\nheads: {}\n", "line 1: expected the file of the fixed patterns"),
        ("patterns: {file: ../a, sha256: 0}\nheads: {}\n", "line 1: '../a'; expected the name of a file"),
        ("heads:\n  L0H0:\n    query: {slot: [0]}\n", "line 3: expected 'to' and one condition"),
        ("heads:\n  L0H0:\n    query: {to: first}\n", "line 3: expected 'to' and one condition"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: [0], x: [1]}\n", "line 3: expected 'to' and one condition"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: 0}\n", "line 3: slot is not a list"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: []}\n", "line 2: a condition on no slot"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: [-1]}\n", "line 3: slot '-1'; expected whole numbers"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: [010]}\n", "line 3: slot '010'; expected whole numbers"),
        ("colour: red\nheads: {}\n", "line 1: unknown key 'colour'"),
        ("heads:\n  ? [a]\n  : uniform\n", "line 2: expected plain text"),
    ],
)
def test_bad_yaml_is_one_clear_line_that_names_the_place(tmp_path, text, message):
    path = tmp_path / "circuit.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message) as caught:
        load_circuit(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heads:\n  L9H0: uniform\n", "line 2: L9H0 does not exist: the model has layers 0 to 1"),
        ("heads:\n  L0H7: uniform\n", "line 2: L0H7 does not exist: a layer has heads 0 to 1"),
        ("heads:\n  L0H0:\n    query: third\n", "line 3: L0H0 names the unknown role 'third'"),
        ("heads:\n  L0H0:\n    third: query\n", "line 3: L0H0 names the unknown role 'third'"),
        ("heads:\n  L0H0:\n    query: {to: first, slot: [0]}\n", "line 3: L0H0: unknown group 'slot'"),
        ("heads:\n  L0H0:\n    query: {to: first, at: end, position: [0]}\n", "line 3: L0H0: unknown role 'end'"),
        ("heads:\n  L0H0:\n    first: query\n", "line 3: L0H0 first -> query is against the causal mask"),
    ],
)
def test_a_circuit_for_another_model_is_refused_with_its_line(text, message):
    with pytest.raises(BadInput, match=message):
        parse_circuit(text).check(ROLES, n_layers=2, n_heads=2)


def test_attending_to_oneself_is_not_against_the_mask():
    parse_circuit("heads:\n  L0H0:\n    first: first\n").check(ROLES, 1, 1)


def test_heads_and_mechanisms_may_be_written_as_in_a_circuit_file():
    pattern = torch.eye(4)
    short = Circuit({"L0H0": "previous", "L1H0": {"query": "pair1.second"}, "L2H1": pattern})
    full = {Head(0, 0): Previous(), Head(1, 0): OneHot({"query": "pair1.second"}), Head(2, 1): FixedPattern(pattern)}
    assert short == Circuit(full)
    with pytest.raises(BadInput, match="L0H0 is 'sideways'"):
        Circuit({"L0H0": "sideways"})
    with pytest.raises(BadInput, match="'first' is not a head"):
        Circuit({"first": "uniform"})


def test_roles_are_given_by_name_for_one_instance_or_for_several():
    one = Roles.of({"source": torch.tensor([3, 4]), "target": torch.tensor([1, 0])})
    assert one.names == ("source", "target")
    assert one.positions.tolist() == [[[3], [1]], [[4], [0]]]
    several = {"source": torch.tensor([[3, 2]]), "target": torch.tensor([[1, 0]])}
    slots = {"source": torch.tensor([[0, 1]]), "target": torch.tensor([[1, 0]])}
    two = Roles.of(several, {"slot": slots})
    assert two["target"].tolist() == [[1, 0]]
    assert two.group("slot", "source").tolist() == [[0, 1]]
    with pytest.raises(BadInput, match="role 'target': shape"):
        Roles.of({"source": torch.tensor([3, 4]), "target": torch.tensor([1])})
    with pytest.raises(BadInput, match="no role"):
        Roles.of({})
