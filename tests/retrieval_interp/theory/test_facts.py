import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.depth import layers_causal, layers_full
from retrieval_interp.theory.facts import Fact, Facts, load_facts
from retrieval_interp.theory.information_flow import layers_until, spread
from tests.refusals import assert_refused

# The paper's example (section 3.1), with a second function and a second argument, so that neither alone is enough.
FUNCTIONS = """
query: [g, a]
asked: =3
facts:
  values: [f 1 -> =2, f 2 -> =3, k 1 -> =3, k 2 -> =1]
  functions: [g -> f, h -> k]
  arguments: [b -> 1, a -> 2]
"""


def facts(query, asked, **forms):
    return Facts(tuple(query.split()), {form: tuple(map(Fact.of, told)) for form, told in forms.items()}, asked)


def steps(n):
    """A chain as facts, each of a form of its own, the last step first."""
    return facts("x0", f"x{n}", **{f"step{k}": [f"x{k - 1} -> x{k}"] for k in range(n, 0, -1)})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "facts.yaml"
    path.write_text(FUNCTIONS)
    return path


@given(st.integers(1, 12))
def test_facts_of_one_premise_each_are_a_chain(n_steps):
    assert steps(n_steps).layers(causal=True) == layers_causal(n_steps)
    assert steps(n_steps).layers(causal=False) == layers_full(n_steps)


@settings(max_examples=40)
@given(st.integers(1, 9).flatmap(lambda n: st.permutations(range(1, n + 1))))
def test_facts_of_one_form_that_lead_to_one_another_are_a_chain_too(order):
    told = facts("x0", f"x{len(order)}", steps=[f"x{k - 1} -> x{k}" for k in order])
    for causal in (True, False):
        assert told.layers(causal=causal) == layers_until(
            chain_layout(len(order), order), "query", told.asked, causal=causal
        )


@st.composite
def layered(draw):
    """A query, forms of facts each told by the tokens that the one before tells, and the last form's tokens."""
    n, depth = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    wide = draw(st.booleans())
    forms = {}
    for level in range(depth, 0, -1):
        ends = draw(st.permutations(range(n)))
        told = [f"t{level - 1}.{i} -> t{level}.{ends[i]}" for i in range(n)]
        if wide and level == depth:
            told = [f"q{j} t{level - 1}.{i} -> t{level}.{(i + j) % n}" for i in range(n) for j in range(2)]
        forms[f"form{level}"] = draw(st.permutations(told))
    return "q0 t0.0" if wide else "t0.0", forms, {f"t{depth}.{i}" for i in range(n)}


@settings(max_examples=50)
@given(layered())
def test_a_mask_never_makes_it_shorter_and_whatever_follows_is_found(drawn):
    query, forms, ends = drawn
    known = {*query.split()}
    for level in reversed(forms):
        known |= {f.conclusion for f in map(Fact.of, forms[level]) if known.issuperset(f.premises)}
    (asked,) = known & ends
    told = facts(query, asked, **forms)
    full, causal = told.layers(causal=False), told.layers(causal=True)
    assert full is not None
    assert causal is not None
    assert full <= causal


def test_a_function_of_an_argument_takes_three_layers(path):
    # 1: g's and a's facts join their members, as does f 2 -> 3. 2: the query fetches f and 2. 3: both together find 3.
    told = load_facts(path)
    assert told.layers(causal=True) == 3
    after_two = list(spread(told.layout, causal=True))[2]
    assert {"f", "2"} <= after_two[told.reader]
    assert "=3" not in after_two[told.reader]


def test_one_premise_of_two_tells_nothing_where_another_fact_has_it_too():
    alone = facts("f 2", "c", values=["f 2 -> c"])
    among = facts("f 2", "c", values=["f 1 -> b", "f 2 -> c", "k 2 -> d"])
    assert alone.layers(causal=True) == 2  # either premise finds the place of the fact, and that finds the conclusion
    assert among.layers(causal=True) == 2  # both members of the query must be put together first
    first_alone, first_among = (list(spread(f.layout, causal=True))[1]["query: 2"] for f in (alone, among))
    assert "place of f 2 -> c" in first_alone
    assert "place of f 2 -> c" not in first_among


def test_what_stands_behind_with_a_mask_cannot_be_used_by_what_stands_before():
    last_first = facts("a", "d", three=["c -> d"], two=["b -> c"], one=["a -> b"])
    mixed = facts("a", "d", two=["b -> c"], three=["c -> d"], one=["a -> b"])
    assert last_first.layers(causal=True) == mixed.layers(causal=True) == 3
    assert mixed.layers(causal=False) == last_first.layers(causal=False)


@pytest.mark.parametrize(
    ("query", "asked", "forms", "message"),
    [
        ("a", "c", {"one": ["a -> b"]}, "'c' is asked; expected a token that follows from the query"),
        ("a", "c", {"one": ["b -> c"]}, "'c' is asked; expected"),
        ("a", "a", {"one": ["a -> b"]}, "'a' is asked; expected"),
        ("a", "c", {"two": ["a b -> c"], "one": ["c -> b"]}, "the facts form a cycle: "),
        ("a", "c", {"one": ["a -> b", "a -> e"], "two": ["b -> c", "e -> c"]}, "'one' have the same premises"),
        ("a", "b", {"one": [f"a{i} -> b{i}" for i in range(61)]}, "61 facts; expected at most 60"),
        ("", "c", {"one": ["b -> c"]}, "the query holds no token"),
        ("a a", "b", {"one": ["a -> b"]}, "the query holds a, a; expected different tokens"),
        ("a", "b", {"one": ["a -> b"], "two": ["a -> b"]}, "fact 'a -> b' is given twice"),
        ("a", "b", {"one": ["a -> b", "a c -> d"]}, "the form 'one' have different numbers of premises"),
        ("a", "b", {"one": ["a b"]}, "fact 'a b'; expected different tokens, one of them after the arrow"),
        ("a", "b", {"one": ["a a -> b"]}, "fact 'a a -> b'; expected different tokens"),
        ("a", "b", {"one": ["-> b"]}, "fact '-> b'; expected"),
    ],
)
def test_facts_that_answer_nothing_are_refused_in_one_line(query, asked, forms, message):
    assert_refused(re.escape(message), facts, query, asked, **forms)


def test_words_that_yaml_takes_for_something_else_are_words(path):
    path.write_text("query: [no]\nasked: 2\nfacts: {one: [1 -> 2], two: [no -> 1]}")
    assert load_facts(path).layers(causal=True) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file"),
        ("query: [a", "not YAML"),
        ("facts: {one: [a -> b], one: [c -> d]}", "line 1: 'one' is given twice"),
        ("query: a\nasked: b\nfacts: {}", "query: Input should be a valid list"),
        ("query: [a]\nasked: b\nfacts: [a -> b]", "facts: Input should be a valid dictionary"),
        ("query: [a]\nasked: [b]\nfacts: {one: [a -> b]}", "asked: Input should be a valid string"),
        ("query: [a]\nasked: b\nfacts: {one: [[a]]}", "facts.one.0: Input should be a valid string"),
        ("query: [a]\nasked: b\nfacts: {}\nmore: c", "more: Extra inputs"),
        ("query: [a]\nasked: b\nfacts: {one: [a]}", "fact 'a'; expected different tokens"),
        ("query: !!python/object/apply:os.getcwd []\nasked: b\nfacts: {one: [a -> b]}", "unexpected tag"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line_that_names_it_once(path, text, message):
    path.write_text(text)
    assert assert_refused(re.escape(message), load_facts, path).count(str(path)) == 1


def test_fetching_by_position_takes_facts_that_look_alike_too(path):
    told = load_facts(path)
    assert told.asked in [*spread(told.layout, causal=True, by_position=True)][-1][told.reader]
