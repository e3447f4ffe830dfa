import json

import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from circuits import Examples, Roles, role_attention
from circuits.model import from_pretrained
from tests.architectures import VOCABULARY, huggingface_model
from tests.refusals import assert_refused

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


@pytest.fixture
def tokenizer():
    words = [*SPECIAL.values(), *(f"w{number}" for number in range(len(SPECIAL), VOCABULARY))]
    own = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, **SPECIAL)


def written(kind, tokenizer, folder):
    """A model of this architecture, which now is in the folder, too, with the tokenizer."""
    model = huggingface_model(kind)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


# A folder's name must not matter: TransformerLens guesses architectures from names.
@pytest.mark.parametrize(("kind", "name"), [("gpt2", "llama-of-mine"), ("llama", "gemma-2-like"), ("qwen2", "any")])
def test_a_folder_of_hugging_face_is_a_model_that_computes_the_same(kind, name, tokenizer, tmp_path, capsys):
    own = written(kind, tokenizer, tmp_path / name)
    capsys.readouterr()
    model = from_pretrained(tmp_path / name)
    assert capsys.readouterr().out == "", "standard output belongs to results"
    tokens = torch.randint(VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(tokens), own(tokens).logits, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_its_tokenizer_pads_and_no_head_attends_to_padding_and_without_one_it_is_refused(name, tokenizer, tmp_path):
    written(name, tokenizer, tmp_path)
    model = from_pretrained(tmp_path)
    said = model.tokenizer(["w5 w6", "w7 w8 w9"], padding=True, padding_side="left", return_tensors="pt")
    assert said["input_ids"][:, -2:].tolist() == [[5, 6], [8, 9]]
    assert said["input_ids"][0, 0] == 0
    last = torch.full((2,), said["input_ids"].shape[1] - 1)
    roles = Roles.of({"last": last, "before": last - 1}, valid=said["attention_mask"])
    attention = role_attention(model, Examples(said["input_ids"], last, roles))
    assert attention.shape == (2, 4, 2, 2)
    assert attention[:, :, 0].sum(dim=-1).max() <= 1
    huggingface_model(name).save_pretrained(tmp_path / "alone")
    assert_refused("no tokenizer", from_pretrained, tmp_path / "alone")


def test_an_architecture_that_transformerlens_does_not_have_is_refused(tokenizer, tmp_path, capfd):
    sizes = {"n_embd": 8, "dff": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
    transformers.CTRLLMHeadModel(transformers.CTRLConfig(vocab_size=VOCABULARY, **sizes)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    capfd.readouterr()
    assert_refused("an architecture that TransformerLens does not support", from_pretrained, tmp_path)
    assert capfd.readouterr() == ("", "")  # no bar before the line of the error


def test_one_that_drops_edits_and_a_folder_without_a_model_are_refused(tokenizer, tmp_path):
    assert_refused("no model in Hugging Face's format", from_pretrained, tmp_path)
    written("opt", tokenizer, tmp_path)
    assert_refused(r"^OPTForCausalLM", from_pretrained, tmp_path)


def test_a_name_that_leads_nowhere_is_refused_without_trying_again(monkeypatch):
    monkeypatch.setattr("huggingface_hub.hf_hub_url", lambda *_: "http://127.0.0.1:9/config.json")  # nobody listens
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited to try again"))
    assert_refused("no/such: no model in Hugging Face's format", from_pretrained, "no/such")


def test_weights_that_are_missing_are_not_replaced_by_random_numbers(tokenizer, tmp_path):
    model = written("gpt2", tokenizer, tmp_path)
    weights = {name: own for name, own in model.state_dict().items() if ".h.1." not in name and "lm_head" not in name}
    save_file({name: own.clone() for name, own in weights.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    assert_refused(r"are missing, such as transformer\.h\.1\.", from_pretrained, tmp_path)


def test_weights_that_are_a_pickle_are_not_loaded(tokenizer, tmp_path):
    model = written("gpt2", tokenizer, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert_refused("safetensors", from_pretrained, tmp_path)


def test_a_model_with_code_of_its_own_is_refused_without_a_question(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked a question"))
    tokenizer.save_pretrained(tmp_path)
    config = {"model_type": "strange", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text("raise SystemExit('ran')\n")
    assert_refused("no model in Hugging Face's format", from_pretrained, tmp_path)
