"""The small language models that come with the toolkit: repeated tokens, and indirect object identification."""

import pytest
import torch

from circuits import Circuit, Head, evaluate, load_circuit, role_attention
from circuits.averages import averages
from circuits.discovery.content_or_position import content_or_position
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms import Resample
from retrieval_interp import data_folder, on_task

INDUCTION_HEADS = [Head(1, index) for index in range(4)]
NAME_MOVERS = [Head(1, 0), Head(1, 1)]


@pytest.fixture(scope="module")
def induction():
    return on_task("induction_tokens", "induction")


@pytest.fixture(scope="module")
def ioi():
    return on_task("ioi", "ioi", "logit_difference")


def mean_loss(model, task, circuit):
    return evaluate(model, task, task.examples(256, seed=3), [circuit]).mean().item()


def content_heads(model, task, n_examples):
    test = SequentialTest(model, task, task.examples(n_examples, seed=4), threshold=0.2, searching=True)
    return [*content_or_position(test, averages(model, task).patterns, Circuit()).content]


def attention(model, task, heads, source, target):
    examples = task.examples(256, seed=3)
    names = examples.roles.names
    found = role_attention(model, examples)
    return [found[head.layer, head.index, names.index(source), names.index(target)].item() for head in heads]


def test_the_induction_heads_attend_to_the_token_after_the_one_before(induction):
    assert min(attention(*induction, INDUCTION_HEADS, "end", "next")) > 0.85
    assert mean_loss(*induction, Circuit(dict.fromkeys(INDUCTION_HEADS, Resample()))) > 0.9
    assert max(mean_loss(*induction, Circuit({head: Resample()})) for head in INDUCTION_HEADS) < 0.3
    assert {*content_heads(*induction, n_examples=128)} < {*INDUCTION_HEADS}


def test_the_name_movers_are_the_content_heads_and_attend_to_the_indirect_object(ioi):
    assert content_heads(*ioi, n_examples=256) == NAME_MOVERS
    assert min(attention(*ioi, NAME_MOVERS, "end", "IO")) > 0.3
    assert max(attention(*ioi, NAME_MOVERS, "end", "S1")) < 0.1
    assert mean_loss(*ioi, Circuit(dict.fromkeys(NAME_MOVERS, Resample()))) > 0.8


@torch.no_grad()
def test_the_name_movers_raise_the_indirect_object_and_not_the_subject(ioi):
    model, task = ioi
    examples = task.examples(256, seed=3)
    _, cache = model.run_with_cache(examples.inputs)
    rows, end = torch.arange(256), examples.roles["end"][:, 0]
    names = examples.targets[:, 0, :, 0]
    for head in NAME_MOVERS:
        written = cache["z", head.layer][rows, end, head.index] @ model.W_O[head.layer, head.index]
        normal = (written - written.mean(dim=-1, keepdim=True)) / cache["ln_final.hook_scale"][rows, end]
        logits = normal * model.ln_final.w @ model.W_U
        io, subject = (logits.gather(1, names) - logits[:, names.unique()].mean(dim=1, keepdim=True)).mean(dim=0)
        assert io > 4
        assert subject.abs() < 0.5


def test_the_circuit_of_ioi_keeps_what_the_model_does(ioi):
    circuit = load_circuit(data_folder() / "ioi" / "circuit.yaml")
    assert mean_loss(*ioi, circuit) < 0.1
    for head in NAME_MOVERS:
        assert mean_loss(*ioi, circuit.with_head(head, Resample())) > 0.2
