"""What a task gives, its examples and its losses, is checked where it enters."""

import random
import timeit

import pytest
import torch

import circuits
from circuits import Circuit, Examples, Task, evaluate, validate
from circuits.given import _as_it_is, examples_of
from tests.circuits.entrance.small import CIRCUIT, END, ENTRANCES, Copying, Gives, Loses, plain_losses, uniform
from tests.refusals import assert_refused


class Grades(Copying):
    """Several answers for an example, some of them not asked (-100); graded by a rank at other positions."""

    def examples(self, n, seed):
        given = super().examples(n, seed)
        targets = torch.stack([given.inputs[:, 0], given.inputs[:, 1]], dim=1)
        targets[0, 0] = -100
        return Examples(given.inputs, targets, given.roles)

    def losses(self, outputs, examples):
        right = examples.targets[:, 1:].clamp(min=0)
        return (outputs[:, END + 1].argmax(dim=-1, keepdim=True) != right).float()


def test_a_task_may_inherit_from_the_protocol_and_be_told_from_others():
    own = type("Own", (Task,), {name: getattr(Copying, name) for name in ("examples", "losses")})
    assert not isinstance(Copying(), own)  # as Python 3.12 would have it, if a subclass were read as a Protocol
    assert isinstance(Copying(), Task)


def test_a_task_that_changes_is_checked_again(model):
    task = ReadsAfter("nothing")
    evaluate(model, task, task.examples(64, 0), [Circuit()])
    task.how = "accuracy"
    assert_refused("read more than the outputs", evaluate, model, task, task.examples(64, 0), [Circuit()])


class ReadsAfter(Copying):
    """Reads the output one position after ``end``, in a way that swallows NaN."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def losses(self, outputs, examples):
        after, token = outputs[:, END + 1], examples.inputs[:, END + 1, None]
        return {
            "nothing": outputs[:, END, :1].float(),
            "accuracy": (after.argmax(dim=-1, keepdim=True) != token).float(),
            "top 5": 1 - (after.topk(5).indices == token).any(dim=-1, keepdim=True).float(),
            "rank": (after > after.gather(1, token)).float().mean(dim=-1, keepdim=True),
            "nan_to_num": torch.relu(1 - after.gather(1, token)).nan_to_num(),
            "all positions": (outputs[:, :-1].argmax(dim=-1) != examples.inputs[:, 1:]).float().mean(1, keepdim=True),
        }[self.how]


SWALLOWING = [Grades(), *map(ReadsAfter, ("accuracy", "top 5", "rank", "nan_to_num", "all positions"))]


@pytest.mark.parametrize("task", SWALLOWING, ids=lambda task: getattr(task, "how", "several answers"))
def test_a_loss_that_reads_elsewhere_and_swallows_nan_is_refused(model, task):
    examples = task.examples(64, 0)
    assert_refused("read more than the outputs at the roles end", evaluate, model, task, examples, [Circuit()])


LOSSES = {
    "a batch mean": (lambda own: own.mean(dim=0, keepdim=True), r"of shape \[1, 1\]"),
    "a number": (lambda own: own.mean(), r"of shape \[\]"),
    "a row": (lambda own: own[:, 0], r"of shape \[\d+\]"),
    "transposed": (lambda own: own.repeat(1, 2).T, r"of shape \[2, \d+\]"),
    "two columns": (lambda own: own.repeat(1, 2), r"of shape \[\d+, 2\]"),
    "a list": (lambda own: own.tolist(), "got list"),
    "nothing": (lambda own: None, "got NoneType"),
    "NaN": (lambda own: own * torch.nan, "the task's losses are NaN"),
}


@pytest.mark.parametrize("wrong", LOSSES)
def test_losses_that_are_not_one_for_each_example_and_component_are_refused_at_every_entrance(model, wrong):
    change, said = LOSSES[wrong]
    runs = ENTRANCES if wrong in ("a batch mean", "NaN") else {"evaluate": ENTRANCES["evaluate"]}
    for run in runs.values():
        assert_refused(said, run, model, Loses(change))


@pytest.mark.parametrize(
    "change", [lambda own: own > 3, lambda own: own.long(), lambda own: own.half(), lambda own: own.double()]
)
def test_losses_of_every_type_are_computed_at_least_in_single_precision(model, examples, change):
    task = Loses(change)
    expected = plain_losses(model, task, examples, {(0, 0): uniform()}).double()
    found = evaluate(model, task, examples, [Circuit({"L0H0": "uniform"})])[0]
    assert found.dtype in (torch.float32, torch.float64)
    assert torch.allclose(found.double(), expected, atol=1e-2 if expected.max() > 1 else 0)


def test_losses_of_an_example_that_depend_on_the_others_are_refused(model, examples):
    for change in (lambda own: own.mean().expand(len(own), 1), lambda own: own - own.mean()):
        assert_refused("depend on the other examples", evaluate, model, Loses(change), examples, [CIRCUIT])


TASKS = {
    "a data set that ends": (Gives(lambda task, n, seed: task.examples(min(n, 3), seed)), "3 examples where"),
    "no seed": (Gives(lambda task, n, seed: task.examples(n, 0)), "the same examples for every seed"),
    "chance": (Gives(lambda task, n, _: task.examples(n, random.getrandbits(30))), "other examples for the same seed"),
    "a tuple": (Gives(lambda task, n, seed: (task.examples(n, seed),)), "examples: got tuple"),
    "a class": (Copying, "the class Copying"),
    "a text for components": (Copying(loss_components="nll"), "loss_components"),
    "a text for roles": (Copying(output_roles="end"), "output_roles"),
    "an unknown role": (Copying(output_roles=("answer",)), "unknown role 'answer'"),
    "no task": (3, "has no roles, loss_components"),
}


@pytest.mark.parametrize("wrong", TASKS)
def test_what_is_no_task_is_refused(model, wrong):
    task, said = TASKS[wrong]
    for name, run in ENTRANCES.items():
        if name != "evaluate" or "examples" not in said:  # it is given examples
            assert_refused(said, run, model, task)


DATA_SETS = {
    "drawn with replacement": (200, lambda n, draw: torch.randint(200, (n,), generator=draw)),
    "in another order": (20, lambda n, draw: torch.randperm(20, generator=draw).repeat(n // 20 + 1)[:n]),
    "as many as are compared": (32, lambda n, draw: torch.randperm(32, generator=draw).repeat(n // 32 + 1)[:n]),
}


@pytest.mark.parametrize("how", DATA_SETS)
@pytest.mark.parametrize("seed", range(3))
def test_examples_of_a_small_data_set_that_repeat_are_told(how, seed):
    size, order = DATA_SETS[how]
    task = Gives(lambda task, n, own: task.examples(size, 0).take(order(n, torch.Generator().manual_seed(own))))
    with pytest.warns(UserWarning, match=r"512 examples were asked for, \d+ are different, and of 32 with another"):
        examples_of(task, 512, seed)


def test_an_entrance_tells_that_examples_repeat(model):
    task = Gives(lambda task, n, own: task.examples(20, 0).take((torch.arange(n) + own) % 20))
    with pytest.warns(UserWarning, match="are different"):
        circuits.path_patching(model, task, CIRCUIT, n_examples=64)


def test_a_task_of_many_different_examples_is_not_told(model, recwarn):
    validate(model, Copying(), CIRCUIT, n_examples=512)
    assert not [one for one in recwarn if "are different" in str(one.message)]


def test_a_task_that_gives_few_examples_is_asked_for_no_more_than_the_user_asks_for():
    few = Gives(lambda task, n, seed: task.examples(min(n, 20), seed))
    assert len(examples_of(few, 16, seed=0)) == 16


def test_what_a_task_is_costs_nothing_whatever_it_holds():
    task = Copying()
    task.prompts, task.tensors = ["a prompt"] * 10**6, [torch.zeros(1000)] * 1000
    assert timeit.timeit(lambda: _as_it_is(task), number=100) < 2  # 2 ms measured; to look at all of it takes 50 s


def test_what_a_small_mapping_of_a_task_holds_belongs_to_what_it_is():
    task = Copying()
    task.options = {"at": [3]}
    before = _as_it_is(task)
    task.options["at"][0] = 4
    assert _as_it_is(task) != before
