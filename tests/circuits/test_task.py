"""What a user implements: the example in the docstring of circuits/task.py works, and each optional part is a kind."""

import re
import textwrap

import torch

from circuits import Circuit, Examples, Roles, evaluate, task
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.task import LaidOut, Task, WithInstances, check_task
from tests.handmade import ChainTask


def test_the_task_in_the_docstring_runs_as_it_stands():
    code = re.search(r"\n\n(    class .*?)\n\n(?=\S)", task.__doc__, re.S)[1]
    names = {"torch": torch, "Examples": Examples, "Roles": Roles}
    exec(textwrap.dedent(code), names)
    (kind,) = (value for name, value in names.items() if isinstance(value, type) and value not in (Examples, Roles))
    cfg = HookedTransformerConfig(
        n_layers=1, n_heads=2, d_model=8, d_head=4, n_ctx=4, d_vocab=10, act_fn="relu", seed=0, device="cpu"
    )
    own = kind()
    check_task(own)
    losses = evaluate(HookedTransformer(cfg), own, own.examples(8, 0), [Circuit(), Circuit({"L0H0": "uniform"})])
    assert losses.shape == (2, 8, 1)
    assert not torch.equal(losses[0], losses[1])


def test_a_task_with_all_optional_parts_is_of_every_kind():
    assert all(isinstance(ChainTask(1), kind) for kind in (Task, WithInstances, LaidOut))
