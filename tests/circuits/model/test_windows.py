"""Models with sliding windows: in some layers, a position sees itself and the three positions before it only."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from circuits import Circuit, Examples, FixedPattern, Head, OneHot, Roles, evaluate, run_ablated, validate
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import minimality
from circuits.checks.uniqueness import uniqueness
from circuits.discovery.literal import _choices
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Mechanism
from circuits.mechanisms.one_hot import Condition
from circuits.model.transformer import windowed, windows
from tests.architectures import LENGTH, ONLY_3, bridge
from tests.circuits.entrance.small import Answering, Copying, plain_losses, small_model
from tests.refusals import assert_refused

WINDOW = 4
FIRST, SECOND, BOTH = (WINDOW, None), (None, WINDOW), (WINDOW, WINDOW)  # the layers that have the window
LOCAL = pytest.param("local", FIRST, marks=ONLY_3)
BRIDGES = [("gemma2", FIRST), ("gemma3", FIRST), ("mistral", BOTH), ("qwen2_window", SECOND)]
DROPPED = [("gpt_neo", SECOND)]  # TransformerLens 3.9 drops changes of its patterns
NONE = (None, None)
WITHOUT = [("gpt2", NONE), ("qwen2", NONE), ("mixtral", NONE), pytest.param("global", NONE, marks=ONLY_3)]
PLACES = {"far": 3, "near": 7, "last": 9}  # near is two positions before last, and far six


class Near(Copying):
    """The token at ``far`` is asked for at ``last``."""

    def examples(self, n, seed):
        given = super().examples(n, seed)
        return replace(given, roles=Roles.of({name: torch.full((n,), at) for name, at in PLACES.items()}))


@dataclass(frozen=True)
class ToTheFirst(Mechanism):
    """Every position attends to the first."""

    name = "to_the_first"

    def pattern(self, roles, n_positions):
        return torch.eye(n_positions)[0].expand(1, n_positions, -1)


PROBLEM = Near(tuple(PLACES), output_roles=("last",))


@cache
def model_of(name):
    if name not in ("local", "global"):
        return bridge(name)
    return small_model(use_local_attn=name == "local", attn_types=["local", "global"], window_size=WINDOW)


def uniform(window):
    """Equal attention to the keys that a query sees, one query after the other."""
    rows = torch.zeros(LENGTH, LENGTH)
    for query in range(LENGTH):
        first = 0 if window is None else max(0, query - window + 1)
        rows[query, first : query + 1] = 1 / (query + 1 - first)
    return rows


@pytest.mark.parametrize(("name", "expected"), [LOCAL, *BRIDGES, *DROPPED, *WITHOUT])
def test_the_windows_are_those_of_the_patterns_that_the_model_has(name, expected):
    model, examples = model_of(name), PROBLEM.examples(3, seed=0)
    assert windows(model) == expected
    roles = windowed(model, examples.roles)
    _, seen = model.run_with_cache(examples.inputs)
    for layer in range(2):
        there = (seen[f"blocks.{layer}.attn.hook_pattern"] > 0).any(dim=1).any(dim=0)
        assert torch.equal(roles.in_layer(layer).mask(LENGTH), there)


@pytest.mark.parametrize(("name", "expected"), [LOCAL, *BRIDGES, *WITHOUT])
def test_uniform_heads_attend_equally_within_the_window_as_plain_hooks_do(name, expected):
    model, examples = model_of(name), PROBLEM.examples(5, seed=1)
    everywhere = [Head(layer, index) for layer in range(2) for index in range(4)]
    path = uniform(expected[1])
    path[9] = torch.eye(LENGTH)[7]
    for heads, more in ((everywhere, {}), ([Head(0, 1)], {}), (everywhere[:4], {Head(1, 2): path})):
        circuit = Circuit(dict.fromkeys(heads, "uniform") | dict.fromkeys(more, OneHot({"last": "near"}, "uniform")))
        patterns = {head: uniform(expected[head.layer]) for head in heads} | more
        truth = plain_losses(model, PROBLEM, examples, patterns)
        with torch.no_grad():
            hooked = PROBLEM.losses(run_ablated(model, circuit, examples), examples)
        assert (evaluate(model, PROBLEM, examples, [circuit])[0] - truth).abs().max() <= 2e-6
        assert (hooked - truth).abs().max() <= 2e-6


BEYOND = [
    (OneHot({"last": "far"}), "L{}H2 last -> far leaves the window of 4 positions of layer {}"),
    (OneHot({"last": "position 5"}), "L{}H2 last -> position 5 leaves the window of 4 positions of layer {}"),
    (FixedPattern(uniform(None)), "L{}H2: a given pattern leaves the window of 4 positions: "),
    (OneHot({"last": "near"}, FixedPattern(uniform(None))), "L{}H2: a given pattern leaves the window of 4 positions"),
    (ToTheFirst(), "L{}H2: to_the_first leaves the window of 4 positions: a query attends to a key before it"),
]


@pytest.mark.parametrize(("mechanism", "said"), BEYOND)
@pytest.mark.parametrize(("name", "expected"), [LOCAL, ("gemma2", FIRST), ("qwen2_window", SECOND)])
def test_what_attends_out_of_the_window_is_refused_in_one_line_and_taken_where_there_is_none(
    name, expected, mechanism, said
):
    model, examples = model_of(name), PROBLEM.examples(4, seed=0)
    layer = expected.index(WINDOW)
    outside = Circuit({Head(layer, 2): mechanism})
    for work in (
        lambda: evaluate(model, PROBLEM, examples, [outside]),
        lambda: run_ablated(model, outside, examples),
        lambda: validate(model, Answering(PROBLEM, model), outside, n_examples=8),
    ):
        assert_refused("^" + said.format(layer, layer), work)
    elsewhere = Circuit({Head(1 - layer, 2): mechanism})
    assert evaluate(model, PROBLEM, examples, [elsewhere]).isfinite().all()


def test_a_path_leads_to_the_last_position_of_the_window_and_no_further():
    model, examples = model_of("mistral"), PROBLEM.examples(4, seed=0)
    found = evaluate(model, PROBLEM, examples, [Circuit({"L0H0": OneHot({"last": "position 6"}, "uniform")})])[0]
    row = uniform(WINDOW)
    row[9] = torch.eye(LENGTH)[6]
    assert (found - plain_losses(model, PROBLEM, examples, {Head(0, 0): row})).abs().max() <= 2e-6


def test_a_path_may_hold_on_the_instances_only_whose_ends_are_in_one_window():
    at = Roles.of({"a": torch.tensor([3, 7]), "b": torch.tensor([9, 9])})
    examples = Examples(PROBLEM.examples(2, seed=0).inputs, torch.tensor([4, 5]), at)
    near = OneHot({"b": "a"}, "identity", {("b", "a"): Condition("position", "a", (7,))})
    truth = torch.eye(LENGTH).repeat(2, 1, 1)
    truth[1, 9] = torch.eye(LENGTH)[7]
    model = model_of("mistral")
    found = run_ablated(model, Circuit({"L0H0": near}), examples)
    expected = plain_losses(model, PROBLEM, examples, {Head(0, 0): truth})
    assert (PROBLEM.losses(found, examples) - expected).abs().max() <= 2e-6
    far = Circuit({"L0H0": OneHot({"b": "a"})})
    assert_refused("L0H0 b -> a leaves the window of 4 positions of layer 0", run_ablated, model, far, examples)


def test_checks_try_no_path_that_leaves_a_window():
    circuit = Circuit({Head(0, 0): OneHot({"last": "near"}), Head(1, 0): OneHot({"last": "far"})})
    model = model_of("gemma2")
    experiment = Experiment(model, Answering(PROBLEM, model), circuit, n_examples=8)
    parts = [one.model_copy(update={"needed": "directly"}) for one in minimality(experiment)]
    assert [[*roles] for roles in uniqueness(experiment, parts).targets.values()] == [["near"]]
    roles = windowed(model_of("gemma2"), PROBLEM.examples(2, seed=0).roles)
    assert [roles.in_layer(layer).pairs for layer in range(2)] == [
        (("last", "near"),),
        (("near", "far"), ("last", "far"), ("last", "near")),
    ]


@ONLY_3
def test_appendix_e_tries_no_path_that_leaves_the_window_on_some_example():
    class Sometimes(Near):
        def examples(self, n, seed):
            given = super().examples(n, seed)
            at = {name: torch.full((n,), place) for name, place in PLACES.items()}
            return replace(given, roles=Roles.of(at | {"near": 9 - torch.arange(n) % 6}))

    model, task = model_of("local"), Sometimes(tuple(PLACES), output_roles=("last",))
    choices = _choices(SequentialTest(model, task, task.examples(32, 0), 0.5), task.examples(32, 1))
    assert not any(kind.paths for head, kinds in choices.items() for kind in kinds if head.layer == 0)
