import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from inspect_ai.model import (
    ChatMessage,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    get_model,
)
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
from circuits.ablation.evaluation import evaluate
from circuits.losses.interval import Interval
from circuits.model.transformer import Transformer
from retrieval_interp.llm.continuing import continuing
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen
from retrieval_interp.models.language import language_model
from retrieval_interp.prompts import formulation
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.prompted import Prompted
from tests.llm_servers import Oracle, oracle_server, transformers_server, write_random_model


def assert_at_chance(logs: Path) -> None:
    row = results(logs_in(logs)).iloc[0].to_dict()
    assert (row["exhausted"], row["failed"]) == (0, 0), row
    interval = Interval.of_share(row["right"], row["asked"], level=1 - 1e-9)  # a server draws without a seed
    assert interval.low <= row["chance"] <= interval.high, row


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    write_random_model(folder)
    return folder


@pytest.mark.slow
def test_a_random_model_on_a_real_server_comes_to_chance(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_API_KEY", "none")
    with transformers_server(random_model) as address:
        monkeypatch.setenv("LOCAL_BASE_URL", address)
        tasks = chosen(["equations"], [2], samples=24, chains=4, seed=0, attempts=200)
        model = f"openai-api/local/{random_model}"
        assert ask(tasks, [model], tmp_path, quiet=True, max_tokens=1, temperature=1.0).missing is None
    assert_at_chance(tmp_path)


@pytest.mark.slow
def test_a_local_hugging_face_model_is_asked(random_model: Path, tmp_path: Path) -> None:
    model = get_model(f"hf/{random_model}", device="cpu", batch_size=8, memoize=False)
    tasks = chosen(["equations"], [2], samples=2, chains=4, seed=0, attempts=200)
    assert ask(tasks, [model], tmp_path, quiet=True, max_tokens=1, temperature=1.0).missing is None
    assert results(logs_in(tmp_path)).iloc[0]["asked"] == 2


@pytest.mark.slow
def test_an_oracle_on_a_server_is_always_right_whatever_its_rate_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_API_KEY", "none")
    with oracle_server() as address:
        monkeypatch.setenv("ORACLE_BASE_URL", address)
        tasks = chosen(["equations", "lives_with", "kingdoms", "functions", "relatives"], [3], 6, 4, 0, 3)
        assert ask(tasks, ["openai-api/oracle/any"], tmp_path, quiet=True).missing is None
    table = results(logs_in(tmp_path))
    assert table["right"].tolist() == [6] * 5
    assert Oracle.asked > 30


@pytest.mark.slow
def test_a_server_that_is_not_there_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOWHERE_API_KEY", "none")
    monkeypatch.setenv("NOWHERE_BASE_URL", "http://127.0.0.1:9/v1")
    tasks = chosen(["kingdoms"], [1], 1, 4, 0, 1)
    missing = ask(tasks, ["openai-api/nowhere/any"], tmp_path, quiet=True, max_retries=0).missing
    assert missing is not None
    assert missing.startswith("openai-api/nowhere/any did not answer all questions of retrieval_interp/kingdoms")
    assert results(logs_in(tmp_path)).iloc[0]["failed"] == 1


@pytest.mark.slow
def test_an_untrained_hooked_transformer_comes_to_chance(untrained: Path, tmp_path: Path) -> None:
    tasks = chosen(["equations"], [2], samples=24, chains=4, seed=0, attempts=200)
    assert ask(tasks, [f"hooked/{untrained}"], tmp_path, quiet=True, max_tokens=1).missing is None
    assert_at_chance(tmp_path)


def test_a_hooked_transformer_answers_the_same_at_temperature_zero(untrained: Path, tmp_path: Path) -> None:
    for logs in (tmp_path / "one", tmp_path / "two"):
        tasks = chosen(["equations"], [2], samples=5, chains=4, seed=0, attempts=1)
        ask(tasks, [f"hooked/{untrained}"], logs, quiet=True, temperature=0.0)
    one, two = (results(logs_in(tmp_path / name)) for name in ("one", "two"))
    assert one.equals(two)


@pytest.mark.slow
def test_questions_that_do_not_fit_into_a_model_are_named(untrained: Path, tmp_path: Path) -> None:
    tasks = chosen(["equations"], [5], samples=1, chains=4, seed=0, attempts=1)
    missing = ask(tasks, [f"hooked/{untrained}"], tmp_path, quiet=True).missing
    assert missing is not None
    assert "does not know '" in missing


def test_a_model_directory_is_a_language_model_with_its_tokenizer(untrained: Path) -> None:
    model = language_model(str(untrained))
    tokens = model.tokenizer("a = 3\n", return_tensors="pt")["input_ids"]
    assert [model.tokenizer.decode(token) for token in tokens[0]] == ["a", "=", "3", "\n"]
    assert model(tokens).shape == (1, 4, len(EquationsTask(n_steps=2).words))
    assert torch.isfinite(model(tokens)).all()


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
@pytest.mark.parametrize("name", ["anything", "llama-of-mine", "gemma-2-like"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
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
        evaluate(model, task, examples, [circuit])
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
    assert asked(tmp_path, [ChatMessageUser(content="a = 3")], max_tokens=2).usage is not None


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


def asked(model: Path, messages: list[ChatMessage], **config: Any) -> ModelOutput:
    """What a HookedTransformer answers."""
    return asyncio.run(get_model(f"hooked/{model}").generate(messages, config=GenerateConfig(**config)))


def written_without_a_cache(model: Transformer, question: str, seed: int) -> str:
    """Five tokens, by running everything again for every one of them."""
    generator = torch.Generator().manual_seed(seed)
    read = tokens = model.tokenizer(f"{question}\n", return_tensors="pt")["input_ids"]
    for _ in range(5):
        chances = model(tokens)[0, -1].softmax(dim=-1)
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)[None]], dim=1)
    return str(model.tokenizer.decode(tokens[0, read.shape[1] :]))


def test_what_a_model_writes_does_not_depend_on_its_cache(untrained: Path) -> None:
    model = language_model(str(untrained))
    by_seed = ((seed, written_without_a_cache(model, "a = 3", seed)) for seed in range(20))
    seed, written = next((seed, text) for seed, text in by_seed if "\n" not in text)  # which would end the answer
    output = asked(untrained, [ChatMessageUser(content="a = 3")], temperature=1.0, seed=seed, max_tokens=5)
    assert (output.completion, output.stop_reason) == (written, "max_tokens")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_text_read_piece_by_piece_has_the_logits_of_the_whole_text(kind: str, tmp_path: Path) -> None:
    write_hugging_face_model(kind, tmp_path)
    model = language_model(str(tmp_path))
    tokens = torch.randint(0, model.cfg.d_vocab, (1, 12), generator=torch.Generator().manual_seed(0))
    read_on = continuing(model)
    with torch.no_grad():
        pieces = torch.cat([read_on(piece) for piece in tokens.split([5, 1, 1, 5], dim=1)], dim=1)
        torch.testing.assert_close(pieces.log_softmax(-1), model(tokens).log_softmax(-1), atol=1e-5, rtol=0)


def test_an_answer_that_fills_the_model_says_so(untrained: Path) -> None:
    long = "a = 3\n" * (
        language_model(str(untrained)).cfg.n_ctx // 4
    )  # four tokens each, and one for the last line break
    output = asked(untrained, [ChatMessageUser(content=long[:-3])], temperature=1.0, seed=0, max_tokens=50)
    assert output.stop_reason == "model_length"


@pytest.mark.parametrize(
    ("options", "named"), [({"top_k": 1}, "top_k"), ({"stop_seqs": ["a"]}, "stop_seqs"), ({"temperature": -1.0}, "-1")]
)
def test_options_that_a_hooked_transformer_does_not_know_are_refused(
    untrained: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=f"does not support .*{named}"):
        asked(untrained, [ChatMessageUser(content="a = 3")], **options)


def test_hardly_any_temperature_is_none(untrained: Path) -> None:
    cold, none = (
        asked(untrained, [ChatMessageUser(content="a = 3")], temperature=heat, max_tokens=5) for heat in (1e-50, 0.0)
    )
    assert cold.completion == none.completion


def test_a_hooked_transformer_is_asked_one_message(untrained: Path) -> None:
    with pytest.raises(BadInput, match="a single message; got 2"):
        asked(untrained, [ChatMessageSystem(content="a = 1"), ChatMessageUser(content="a = 3")])


def test_models_that_read_no_text_or_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="one_layer: reads no text"):
        language_model("one_layer")
    with pytest.raises(BadInput, match=f"{tmp_path}: no model in Hugging Face's format"):
        language_model(str(tmp_path))


@pytest.mark.slow
def test_inspects_own_command_finds_the_tasks_and_the_models(untrained: Path, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("inspect")),
        "eval",
        "retrieval_interp/equations",
        "--display",
        "none",
    ]
    command += ["-T", "steps=2", "-T", "samples=3", "-T", "attempts=50", "--model", f"hooked/{untrained}"]
    done = subprocess.run([*command, "--log-dir", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["formulation"], row["steps"], row["asked"]) == ("equations", 2, 3)
