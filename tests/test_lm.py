"""SmolLM2, a model that nobody here trained (``make test-lm``). Scores are computed with transformers alone."""

import pandas as pd
import pytest
import torch
import transformers

from circuits import evaluate, load_circuit
from circuits.averages import averages
from circuits.circuit import Circuit
from circuits.discovery.gates import learned_gates
from circuits.discovery.soft_paths import soft_paths
from circuits.errors import BadInput
from circuits.losses.sequential_test import SequentialTest
from retrieval_interp import data_folder, load
from retrieval_interp.language_tasks.language_task import Metric
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models import smollm2
from retrieval_interp.models.machine import on_machine
from tests.annotations import ROOT

pytestmark = pytest.mark.lm
try:
    FOLDER = smollm2.folder()
except BadInput as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def model():
    return load("smollm2").model


@pytest.fixture(scope="module")
def plain():
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager").eval()


def logit_difference(model, bos):
    task = MetricTask(language_task("ioi", model.tokenizer, bos), model, Metric.logit_difference, 1.0)
    (losses,) = evaluate(model, task, task.examples(64, seed=1), [Circuit()])
    return 1 - losses.mean().item()


def test_prompts_begin_as_the_models_own_tokenizer_begins_them(model):
    own = transformers.AutoTokenizer.from_pretrained(FOLDER)("Today").input_ids
    assert model.tokenizer("Today").input_ids == own
    assert logit_difference(model, "default") > logit_difference(model, "<|im_start|>") + 0.5


@torch.no_grad()
def test_outputs_in_single_and_half_precision_are_those_of_transformers(model, plain):
    examples = language_task("ioi", model.tokenizer).examples(8, seed=0)
    mask = examples.roles.valid.long()
    expected = plain(examples.inputs, attention_mask=mask).logits
    assert torch.equal(model(examples.inputs, attention_mask=mask)[mask.bool()], expected[mask.bool()])
    with on_machine(dtype="bfloat16"):
        half = load("smollm2").model(examples.inputs, attention_mask=mask)
    assert half.dtype == torch.bfloat16
    assert (half.argmax(dim=-1) == expected.argmax(dim=-1))[mask.bool()].float().mean() > 0.9


@torch.no_grad()
def test_what_heads_look_at_is_what_transformers_says(model, plain):
    """All scores of studies/smollm2, whose table has what the circuits say of the heads, and their costs."""
    table = pd.read_csv(ROOT / "studies/smollm2/scores.csv")
    told = {*zip(table["task"], table["head"], strict=True)}
    for name, scores in {
        "ioi": [("end", "IO"), ("end", "S2"), ("S2", "S1"), ("S2", "S1+1"), ("S1+1", "S1")],
        "induction": [("end", "next"), ("end", "earlier"), ("next", "earlier")],
    }.items():
        examples = language_task(name, model.tokenizer).examples(64, seed=2)
        found, roles = soft_paths(model, examples), examples.roles
        mask = roles.tokens(examples.inputs.shape[1]).long()
        seen = torch.stack(plain(examples.inputs, attention_mask=mask, output_attentions=True).attentions)
        rows = torch.arange(len(examples))[:, None]
        for source, target in scores:
            paid = seen[:, rows, :, roles[source], roles[target]].mean(dim=(1, 2))  # [layer, head]
            for layer, index in (paid > 0.5).nonzero().tolist():
                (head,) = (one for one in found if one == (layer, index))
                assert dict(found[head].weights)[source, target] == pytest.approx(paid[layer, index].item(), abs=2e-3)
                assert (name, str(head)) in told or paid[layer, index] < 0.55  # other prompts there


def test_gates_tell_heads_that_ablation_finds_needed_from_others(model):
    task = MetricTask.of(model, language_task("ioi", model.tokenizer))
    means, examples = averages(model, task, n_examples=64), task.examples(48, seed=3)
    gates = learned_gates(model, task, examples, [Circuit(means.patterns), Circuit()], (0.00005, 0.003), 48)
    order = sorted(gates, key=lambda head: (gates[head][-1, 0], gates[head][:, 0].sum()))
    some, kept = order[:20] + order[100:120], Circuit({head: means.patterns[head] for head in order[30:]})
    ablated = [
        kept.with_head(head, means.patterns[head]) if head in order[:30] else kept.without_heads([head])
        for head in some
    ]
    losses = evaluate(model, task, examples.take(slice(0, 24)), [kept, *ablated], averages=means).mean(dim=(1, 2))
    costs = (losses[1:] - losses[0]).abs()
    assert losses[0] < 0.1
    assert costs[:20].mean() > 10 * costs[20:].mean()


@pytest.mark.parametrize(
    ("name", "share", "most_kl", "n_looking"), [("ioi", 0.92, 0.12, 30), ("induction", 0.97, 2.6, 10)]
)
def test_the_circuits_in_the_data_keep_what_the_model_does(model, name, share, most_kl, n_looking):
    circuit = load_circuit(data_folder() / "smollm2" / name / "circuit.yaml")
    task = MetricTask(language_task(name, model.tokenizer), model, Metric.kl, 1.0)
    test = SequentialTest(model, task, task.examples(128, seed=4), 0.05, averages(model, task, n_examples=64))
    own, kept = test.measure([Circuit(), circuit])
    assert kept.measures["logit difference"] / own.measures["logit difference"] == pytest.approx(share, abs=0.12)
    assert kept.measures["top-1"] == pytest.approx(own.measures["top-1"], abs=0.06)
    assert kept.measures["KL"] < most_kl
    assert len(circuit.looking) == n_looking
