"""Commands on language tasks."""

import json

import pytest
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from circuits import Circuit, Head, save_circuit
from circuits.mechanisms import Identity
from retrieval_interp.language_tasks import ioi
from retrieval_interp.language_tasks.metric import MetricTask
from tests.command import refusal, run
from tests.tokenizing import characters


def written(folder, read):
    """A tiny model in Hugging Face's format, with a tokenizer of letters or without one."""
    logging.disable_progress_bar()
    tokenizer = characters((*ioi.WORDINGS, *ioi.NAMES), eos_token="T")
    config = GPT2Config(n_layer=1, n_head=1, n_embd=8, n_positions=200, vocab_size=len(tokenizer))
    GPT2LMHeadModel(config).save_pretrained(folder)
    if read:
        tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["discover", "ioi", "--task", "ioy"], "unknown task 'ioy'; expected one of induction, ioi"),
        (["discover", "equations", "--task", "ioi"], "the tokenizer does not know 'Today'"),
        (["discover", "one_layer", "--task", "ioi"], "one_layer: reads no text; expected a model with a tokenizer"),
        (["discover", "ioi", "--metric", "kl"], "--metric and --bos belong to a language task; name one with --task"),
        (["validate", "letters", "--task", "ioi"], "--task needs a circuit; name one with --circuit"),
        (["view", "ioi", "--task", "ioy"], "unknown task 'ioy'"),
        (["discover", "bare", "--task", "ioi"], "bare: no tokenizer"),
        (["discover", "letters", "--task", "ioi"], "the names of ioi: 0 are one token in this tokenizer"),
        (["view", "ioi", "induction_tokens", "--task", "ioi"], "induction_tokens has another tokenizer than ioi"),
        (["view", "ioi", "--task", "ioi", "--training"], "leave out --training or --task"),
    ],
)
def test_a_language_task_that_cannot_be_run_is_refused_in_one_line(capsys, tmp_path, monkeypatch, command, says):
    monkeypatch.chdir(tmp_path)
    for name in {"bare", "letters"} & {*command}:
        written(tmp_path / name, read=name == "letters")
    assert says in refusal(capsys, *command)


def test_a_circuit_of_unknown_roles_is_refused_before_the_model_is_measured(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(MetricTask, "of", lambda *_: pytest.fail("the model was measured"))
    (tmp_path / "wrong.yaml").write_text("heads:\n  L0H0:\n    end: S3\n")
    command = ("validate", "ioi", "--task", "ioi", "--circuit", tmp_path / "wrong.yaml")
    assert "line 3: L0H0 names the unknown role 'S3'" in refusal(capsys, *command)


def test_a_graph_of_a_model_of_another_size_is_refused(capsys, tmp_path):
    (tmp_path / "g.json").write_text('{"cfg": {"n_layers": 2, "n_heads": 2}, "nodes": {"a0.h0": {"in_graph": true}}}')
    command = ("validate", "ioi", "--task", "ioi", "--circuit", tmp_path / "g.json", "--out", tmp_path / "new")
    assert "its cfg has 4 heads, the model 6" in refusal(capsys, *command)


def test_a_circuit_is_validated_on_a_language_task_and_the_report_is_reproduced(capsys, tmp_path):
    circuit = tmp_path / "circuit.yaml"
    save_circuit(Circuit({Head(0, 0): Identity()}), circuit)
    asked = ("--task", "ioi", "--metric", "probability", "--examples", "32")
    code, out, _ = run(capsys, "validate", "ioi", *asked, "--circuit", circuit, "--out", tmp_path, "--json")
    report = json.loads(out)
    assert code == 1  # one head is not a circuit
    assert report["threshold"] == 0.05
    assert (report["metadata"]["task"], report["metadata"]["metric"]) == ("ioi", "probability")
    assert report["scale"]["own"]["mean"] == pytest.approx(0.0, abs=0.05)
    assert {*report["faithfulness"]["ablations"]} == {"mean", "resample"}
    assert run(capsys, "reproduce", tmp_path)[0] == 0


def test_attention_is_shown_on_the_prompts_of_a_language_task(capsys, tmp_path):
    assert run(capsys, "view", "ioi", "--task", "ioi", "--examples", "1", "--out", tmp_path)[0] == 0
    assert "S1+1" in (tmp_path / "attention.html").read_text()
