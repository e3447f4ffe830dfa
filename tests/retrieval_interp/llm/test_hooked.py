"""Language models of TransformerLens as Inspect's: small random ones, untrained or in Hugging Face's format."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_ai import eval as evaluate
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageUser, GenerateConfig, ModelOutput, get_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from circuits import BadInput, Circuit, Head, OneHot, role_attention
from circuits.ablation import evaluate as losses_of
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.models.language import language_model
from retrieval_interp.prompts import formulation
from retrieval_interp.results import Interval
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.prompted import Prompted

QUESTION: list[ChatMessage] = [ChatMessageUser(content="a = 3")]


def asked(model: Path, messages: list[ChatMessage] = QUESTION, **config: Any) -> ModelOutput:
    """What a HookedTransformer answers."""
    return asyncio.run(get_model(f"hooked/{model}").generate(messages, config=GenerateConfig(**config)))


def test_inspect_finds_the_tasks_and_the_models_and_an_untrained_one_comes_to_chance(
    untrained: Path, tmp_path: Path
) -> None:
    sizes = {"steps": 2, "samples": 12, "attempts": 200}
    model, logs = f"hooked/{untrained}", str(tmp_path)
    evaluate("retrieval_interp/equations", model=model, task_args=sizes, log_dir=logs, display="none", max_tokens=1)
    row = results(logs_in(tmp_path)).iloc[0].to_dict()
    assert (row["formulation"], row["steps"], row["asked"], row["exhausted"]) == ("equations", 2, 12, 0)
    interval = Interval.of_share(row["right"], row["asked"], level=1 - 1e-9)
    assert interval.low <= row["chance"] <= interval.high, row


def test_a_seed_or_no_temperature_gives_the_same_answer_again(untrained: Path) -> None:
    for config in ({"seed": 3}, {"temperature": 0.0}, {"temperature": 1e-50}):
        one, again = (asked(untrained, max_tokens=5, **config).completion for _ in range(2))
        assert one == again
    assert len({asked(untrained, max_tokens=5, seed=seed).completion for seed in range(5)}) > 1
    model = language_model(str(untrained))
    read = model.tokenizer("a = 3\n", return_tensors="pt")["input_ids"]
    likeliest = model.tokenizer.decode(model(read)[0, -1].argmax())
    assert asked(untrained, max_tokens=1, temperature=0.0).completion.startswith(likeliest.strip())


def write_hugging_face_model(kind: str, folder: Path) -> PreTrainedModel:
    """A small random model of one of the architectures that people have on their disks."""
    tokenizer = EquationsTask(n_steps=3).tokenizer
    size = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": None}
    modern = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "gpt2":  # n_ctx as in the config of the real one
        model = GPT2LMHeadModel(GPT2Config(**size, n_positions=256, n_ctx=256, n_embd=32, n_layer=2, n_head=4))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**size, **modern, num_key_value_heads=2))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**size, **modern, num_key_value_heads=2))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval()


# A folder's name must not matter: TransformerLens guesses architectures from names.
@pytest.mark.parametrize(("kind", "name"), [("gpt2", "llama-of-mine"), ("llama", "gemma-2-like"), ("qwen2", "any")])
def test_a_folder_of_hugging_face_is_a_language_model_that_computes_the_same(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = write_hugging_face_model(kind, tmp_path / name)
    capsys.readouterr()
    ours = language_model(str(tmp_path / name))
    assert capsys.readouterr().out == "", "standard output belongs to results"
    tokens = torch.randint(0, ours.cfg.d_vocab_out, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens).log_softmax(-1), theirs(tokens).logits.log_softmax(-1))


def test_the_circuit_tools_open_a_folder_of_hugging_face(tmp_path: Path) -> None:
    write_hugging_face_model("llama", tmp_path)
    model = language_model(str(tmp_path))
    task = Prompted(formulation("equations", 2), model.tokenizer)
    examples = task.examples(4, seed=0)
    attention = role_attention(model, examples)
    assert attention.shape == (2, 4, len(task.roles), len(task.roles))
    (free,), (ablated,) = (
        losses_of(model, task, examples, [circuit])
        for circuit in (Circuit(), Circuit({Head(0, 0): OneHot({"answer": "query"})}))
    )
    assert (free != ablated).all(), "an ablation of a head has an effect"


def test_a_folder_whose_tokenizer_puts_the_token_for_the_unknown_before_every_text(tmp_path: Path) -> None:
    """As GPT-2's does in TransformerLens: one token begins a text, ends it, and stands for what is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [question.prompt for question in formulation("equations", 2).questions(20, 0)]
    trainer = BpeTrainer(vocab_size=300, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    before = TemplateProcessing(single="<end> $A", special_tokens=[("<end>", tokenizer.token_to_id("<end>"))])
    tokenizer.post_processor = before
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<end>")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(tmp_path)
    size = {"vocab_size": tokenizer.get_vocab_size(), "n_positions": 256, "n_ctx": 256, "n_embd": 16}
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(**size, n_layer=1, n_head=2)).save_pretrained(tmp_path)
    model = language_model(str(tmp_path))
    task = Prompted(formulation("equations", 2), model.tokenizer)
    examples = task.examples(2, seed=0)
    assert (examples.inputs[:, 0] == model.tokenizer.bos_token_id).all()
    assert (examples.inputs[:, 1] != model.tokenizer.bos_token_id).all()
    assert asked(tmp_path, max_tokens=2).usage is not None


def test_a_tokenizer_that_is_larger_than_its_model_is_refused(tmp_path: Path) -> None:
    write_hugging_face_model("gpt2", tmp_path)
    EquationsTask(n_steps=9).tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="has 35 tokens; its tokenizer returned others"):
        asked(tmp_path, [ChatMessageUser(content=formulation("equations", 9).questions(1, 0)[0].prompt)])


def test_weights_that_are_a_pickle_are_not_loaded(tmp_path: Path) -> None:
    model = write_hugging_face_model("gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="safetensors"):
        language_model(str(tmp_path))


def test_an_answer_that_fills_the_model_says_so_and_a_question_that_does_not_fit_is_refused(untrained: Path) -> None:
    n_ctx = language_model(str(untrained)).cfg.n_ctx  # four tokens for each line, and one for the last line break
    long = ("a = 3\n" * (n_ctx // 4))[:-3]
    assert asked(untrained, [ChatMessageUser(content=long)], temperature=1.0, seed=0).stop_reason == "model_length"
    with pytest.raises(BadInput, match=f"reads at most {n_ctx} tokens"):
        asked(untrained, [ChatMessageUser(content=long + long)])


@pytest.mark.parametrize(
    ("options", "named"), [({"top_k": 1}, "top_k"), ({"stop_seqs": ["a"]}, "stop_seqs"), ({"temperature": -1.0}, "-1")]
)
def test_options_that_a_hooked_transformer_does_not_know_are_refused(
    untrained: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=f"does not support .*{named}"):
        asked(untrained, **options)


def test_a_hooked_transformer_is_asked_one_message(untrained: Path) -> None:
    with pytest.raises(BadInput, match="a single message; got 2"):
        asked(untrained, [ChatMessageSystem(content="a = 1"), *QUESTION])


def test_models_that_read_no_text_or_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one_layer: reads no text"):
        language_model("one_layer")
    with pytest.raises(BadInput, match=f"{tmp_path}: no model in Hugging Face's format"):
        language_model(str(tmp_path))
