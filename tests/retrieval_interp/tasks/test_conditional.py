import torch
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, Head, OneHot
from circuits.flow.flow_check import flow_check
from circuits.mechanisms import Previous
from retrieval_interp.tasks.conditional import ConditionalTask
from tests.refusals import assert_refused
from tests.sequences import symbols_of

tasks = st.builds(ConditionalTask, n_chains=st.integers(1, 5), n_dims=st.sampled_from([2, 4]))


@given(tasks, st.integers(0, 1000))
def test_the_facts_of_a_chain_lead_from_its_query_to_x_and_y_and_from_both_to_z(task, seed):
    examples = task.examples(5, seed)

    def same(one, other):
        return torch.equal(symbols_of(task, examples, one), symbols_of(task, examples, other))

    assert same("query", "x.first")
    assert same("query", "y.first")
    assert same("x.second", "z.first")
    assert same("y.second", "z.second")


@given(tasks, st.integers(0, 1000))
def test_the_targets_are_what_the_facts_tell_in_the_order_of_the_queries(task, seed):
    examples = task.examples(5, seed)
    slot = examples.roles["query"] - (task.n_positions - task.n_chains)
    example = torch.arange(5)[:, None]
    for part, role in enumerate(("x.second", "y.second", "z.third")):
        assert torch.equal(examples.targets[example, slot, part], symbols_of(task, examples, role))


def test_a_slot_says_where_in_its_block_a_fact_stands():
    roles = ConditionalTask(n_chains=3).examples(4, 0).roles
    assert torch.equal(roles["z.second"], 3 * roles.group("slot", "z.second") + 1)
    assert torch.equal(roles["y.first"], 27 + 2 * roles.group("slot", "y.first"))
    assert torch.equal(roles["x.first"], 33 + 2 * roles.group("slot", "x.first"))
    assert torch.equal(roles["query"], 39 + roles.group("slot", "query"))


def test_every_x_stands_with_every_y_once_and_each_gives_something_else():
    task = ConditionalTask(n_chains=3)
    triples = task.examples(4, 0).inputs[:, :27, :4].unflatten(1, (9, 3))
    for example in range(4):
        x, y, z = ({tuple(symbol) for symbol in triples[example, :, member].tolist()} for member in range(3))
        assert (len(x), len(y), len(z)) == (3, 3, 9)
        assert len({tuple(pair) for pair in triples[example, :, :2].flatten(1).tolist()}) == 9


def test_a_circuit_of_three_layers_is_sound_and_one_that_looks_with_x_alone_is_not():
    task = ConditionalTask()
    joined, fetched = {Head(0, 0): Previous(), Head(0, 1): OneHot({"z.third": "z.first"})}, Head(1, 0)
    query = {"query": "x.second"}
    both = {**joined, fetched: OneHot(query), Head(1, 1): OneHot({"query": "y.second"})}
    looked = {Head(2, 0): OneHot({"query": "z.third"})}
    assert flow_check(Circuit({**both, **looked}), task).known_at == {"x": 1, "y": 1, "z": 2}
    only_x = flow_check(Circuit({**joined, fetched: OneHot(query), **looked}), task)
    assert only_x.known_at == {"x": 1, "y": None, "z": None}
    assert [str(path) for path in only_x.forbidden] == ["L2H0 query -> z.third"]


def test_it_takes_three_layers_and_more_chains_than_fit_are_refused():
    assert ConditionalTask().facts.layers(causal=True) == 3
    assert_refused("n_chains is 101; expected a whole number from 1 to 100", ConditionalTask, n_chains=101)
