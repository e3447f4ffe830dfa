"""Language models of TransformerLens as Inspect's: small random ones, untrained or in Hugging Face's format."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_ai import eval as evaluate
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, ModelOutput, get_model
from tokenizers.processors import TemplateProcessing
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from circuits import Circuit, Head, OneHot, role_attention
from circuits.ablation import evaluate as losses_of
from retrieval_interp.llm.forced import log_likelihoods
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.tasks import TASKS
from retrieval_interp.models.language import language_model
from retrieval_interp.prompts import formulation
from retrieval_interp.results import Interval
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.prompted import Prompted
from tests.refusals import assert_refused
from tests.tokenizing import byte_pairs

QUESTION: list[ChatMessage] = [ChatMessageUser(content="a = 3")]


def asked(model: Path, messages: list[ChatMessage] = QUESTION, **config: Any) -> ModelOutput:
    """What a HookedTransformer answers."""
    return asyncio.run(get_model(f"hooked/{model}").generate(messages, config=GenerateConfig(**config)))


def test_inspect_finds_the_tasks_and_the_models_and_an_untrained_one_comes_to_chance(untrained, tmp_path) -> None:
    sizes = {"steps": 2, "samples": 12, "attempts": 200}
    model, logs = f"hooked/{untrained}", str(tmp_path)
    evaluate("retrieval_interp/equations", model=model, task_args=sizes, log_dir=logs, display="none", max_tokens=1)
    row = results(logs_in(tmp_path)).iloc[0].to_dict()
    assert (row["formulation"], row["steps"], row["asked"], row["exhausted"]) == ("equations", 2, 12, 0)
    interval = Interval.of_share(row["right"], row["asked"], level=1 - 1e-9)
    assert interval.low <= row["chance"] <= interval.high, row


def test_a_forced_choice_is_the_acceptable_answer_that_the_model_finds_most_likely(untrained, tmp_path) -> None:
    asked = {"model": "hooked/equations", "task_args": {"steps": 2, "samples": 6, "forced_choice": True}}
    evaluate("retrieval_interp/equations", **asked, log_dir=str(tmp_path), display="none")
    assert results(logs_in(tmp_path)).iloc[0][["forced_choice", "right", "asked"]].tolist() == [True, 6, 6]
    write_gpt2(tmp_path / "gpt2", EquationsTask(n_steps=3).tokenizer)  # read once, its keys kept
    prompt, answers = [5, 6, 7], [[1, 2, 3], [1, 2], [4], [1, 2]]
    for model in (language_model(str(untrained)), language_model(str(tmp_path / "gpt2"))):
        for answer, found in zip(answers, log_likelihoods(model, prompt, answers), strict=True):
            after = (model(torch.tensor([prompt + answer[:n]]))[0, -1].log_softmax(dim=-1) for n in range(len(answer)))
            assert found == pytest.approx(sum(one[answer[n]].item() for n, one in enumerate(after)), abs=1e-4)


def test_shots_are_other_questions_with_their_answers() -> None:
    (one, two, *others), made = formulation("equations", 2).questions(4, 0), TASKS["equations"](2, samples=2, shots=2)
    before = "".join(f"{other.prompt}\n{other.answer}\n\n" for other in others)
    assert [sample.input for sample in made.dataset] == [before + one.prompt, before + two.prompt]


def test_a_seed_or_no_temperature_gives_the_same_answer_again(untrained: Path) -> None:
    for config in ({"seed": 3}, {"temperature": 0.0}, {"temperature": 1e-50}):
        one, again = (asked(untrained, max_tokens=5, **config).completion for _ in range(2))
        assert one == again
    assert len({asked(untrained, max_tokens=5, seed=seed).completion for seed in range(5)}) > 1
    model = language_model(str(untrained))
    read = model.tokenizer("a = 3\n", return_tensors="pt")["input_ids"]
    likeliest = model.tokenizer.decode(model(read)[0, -1].argmax())
    assert asked(untrained, max_tokens=1, temperature=0.0).completion.startswith(likeliest.strip())


def write_gpt2(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "n_positions": 256, "n_ctx": 256, "n_embd": 16, "n_layer": 1, "n_head": 2}
    GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_the_circuit_tools_open_a_folder_whose_tokenizer_begins_every_text_with_the_token_for_the_unknown(tmp_path):
    """As GPT-2's does in TransformerLens: one token begins a text, ends it, and stands for what is unknown."""
    texts = [question.prompt for question in formulation("equations", 2).questions(20, 0)]
    tokenizer = byte_pairs(texts, 300, "<end>")
    before = TemplateProcessing(single="<end> $A", special_tokens=[("<end>", tokenizer.token_to_id("<end>"))])
    tokenizer.post_processor = before
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<end>")
    write_gpt2(tmp_path, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends))
    model = language_model(str(tmp_path))
    task = Prompted(formulation("equations", 2), model.tokenizer)
    examples = task.examples(2, seed=0)
    assert (examples.inputs[:, 0] == model.tokenizer.bos_token_id).all()
    assert (examples.inputs[:, 1] != model.tokenizer.bos_token_id).all()
    assert asked(tmp_path, max_tokens=2).usage is not None
    assert role_attention(model, examples).shape == (1, 2, len(task.roles), len(task.roles))
    free, changed = losses_of(model, task, examples, [Circuit(), Circuit({Head(0, 0): OneHot({"answer": "query"})})])
    assert (free != changed).all(), "an ablation of a head has an effect"


def test_a_tokenizer_that_is_larger_than_its_model_is_refused(tmp_path: Path) -> None:
    write_gpt2(tmp_path, EquationsTask(n_steps=3).tokenizer)
    EquationsTask(n_steps=9).tokenizer.save_pretrained(tmp_path)
    long = [ChatMessageUser(content=formulation("equations", 9).questions(1, 0)[0].prompt)]
    assert_refused("has 35 tokens; its tokenizer returned others", asked, tmp_path, long)


def test_an_answer_that_fills_the_model_says_so_and_a_question_that_does_not_fit_is_refused(untrained: Path) -> None:
    n_ctx = language_model(str(untrained)).cfg.n_ctx  # four tokens for each line, and one for the last line break
    long = ("a = 3\n" * (n_ctx // 4))[:-3]
    assert asked(untrained, [ChatMessageUser(content=long)], temperature=1.0, seed=0).stop_reason == "model_length"
    assert_refused(f"reads at most {n_ctx} tokens", asked, untrained, [ChatMessageUser(content=long + long)])


@pytest.mark.parametrize(
    ("options", "named"), [({"top_k": 1}, "top_k"), ({"stop_seqs": ["a"]}, "stop_seqs"), ({"temperature": -1.0}, "-1")]
)
def test_options_that_a_hooked_transformer_does_not_know_are_refused(untrained, options, named) -> None:
    assert_refused(f"does not support .*{named}", asked, untrained, **options)


def test_a_hooked_transformer_is_asked_one_message(untrained: Path) -> None:
    assert_refused("a single message; got 2", asked, untrained, [ChatMessageSystem(content="a = 1"), *QUESTION])
