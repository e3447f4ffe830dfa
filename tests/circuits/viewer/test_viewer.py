"""Attention viewers: what they hold."""

import warnings

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models

from circuits import Examples, Roles, attention_viewer
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.viewer import Frame, Viewer
from tests.refusals import assert_refused
from tests.tokenizing import byte_pairs


@pytest.fixture(scope="module")
def examples(task):
    return task.examples(2, 0)


def frame(viewer):
    ((only,),) = viewer.panels.values()
    return only


def test_all_heads_those_of_a_layer_or_one(random_model, chains):
    examples = chains.examples(1, 0)
    assert frame(attention_viewer(random_model, examples)).heads == ["L0H0", "L0H1", "L1H0", "L1H1", "L2H0", "L2H1"]
    assert frame(attention_viewer(random_model, examples, layer=1)).heads == ["L1H0", "L1H1"]
    assert frame(attention_viewer(random_model, examples, layer=2, head=1)).heads == ["L2H1"]


def test_what_is_shown_is_the_attention_of_the_model_with_three_decimals(random_model, chains):
    examples = chains.examples(3, 0)
    _, cache = random_model.run_with_cache(examples.inputs[1:2])
    shown = frame(attention_viewer(random_model, examples, 1, layer=2, head=1))
    expected = cache["pattern", 2][0, 1].detach()
    torch.testing.assert_close(torch.tensor(shown.attention[0]), expected, atol=5.1e-4, rtol=0)
    assert shown.tokens == examples.roles.labels(1, 10)


def test_a_position_is_labelled_with_all_its_roles_and_a_shared_role_once():
    several = Roles(("next", "one"), torch.tensor([[[1, 2], [0, 1]]]))
    assert several.labels(0, 4) == ["1:one", "1:next,2:one", "2:next", "3"]
    shared = Roles(("each", "answer"), torch.tensor([[[0, 1], [3, 3]], [[1, 0], [3, 3]]]))
    assert shared.shared == ("answer",)
    assert shared.labels(0, 4) == ["1:each", "2:each", "2", "answer"]
    assert shared.pairs == ()
    assert Roles(("each", "answer"), shared.positions[:, :, :1]).pairs == (("answer", "each"),)  # of one instance


def shown_tokens(tokenizer, numbers):
    """What a viewer shows of tokens, in a model whose vocabulary is padded."""
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 4, "d_head": 4, "n_ctx": 64, "attn_only": True}
    model = HookedTransformer(HookedTransformerConfig(**sizes, d_vocab=400, device="cpu"))
    fast = isinstance(tokenizer, Tokenizer)
    model.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer) if fast else tokenizer
    roles = Roles.of({"one": torch.tensor([0])})
    return frame(attention_viewer(model, Examples(torch.tensor([numbers]), torch.zeros(1), roles))).tokens


def test_tokens_of_bytes_are_shown_as_letters_with_visible_white_space():
    tokenizer = byte_pairs(["The café in Zürich, <b>"] * 9, 300)
    numbers = tokenizer.encode("The café in Zürich\n\t <日\r").ids
    tokens = shown_tokens(tokenizer, [*numbers, 399])
    parts = [f"#{number}" for number in numbers[-4:-1]]  # the three bytes of a letter
    assert tokens == ["The|1:one", "·café", "·in", "·Zürich", "⏎", "⇥", "·<", *parts, r"\r", "#399"]


def test_tokens_of_pieces_keep_their_spaces():
    tokenizer = Tokenizer(models.BPE({"▁the": 0, "the": 1, "▁▁": 2, "<0xE6>": 3, "<0x0A>": 4}, [], byte_fallback=True))
    spaces = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([*spaces])
    assert shown_tokens(tokenizer, [*range(6)]) == ["·the|1:one", "the", "··", "#3", "⏎", "#5"]


class Letters(transformers.PreTrainedTokenizer):
    """A tokenizer that is written in Python and knows ten letters."""

    vocab_size = 10

    def get_vocab(self):
        return {letter: number for number, letter in enumerate("abcdefghij")}

    def _convert_id_to_token(self, index):
        return "abcdefghij"[index]


def test_tokens_that_a_tokenizer_written_in_python_does_not_know_are_numbers():
    assert shown_tokens(Letters(), [0, 9, 17]) == ["a|1:one", "j", "#17"]


def test_before_a_page_becomes_too_large_a_warning_says_how_large_and_what_makes_it_smaller():
    def page(positions):
        Viewer({"": (Frame(step=None, tokens=["x"] * positions, heads=["L0H0"] * 8, attention=[]),)}).page()

    with pytest.warns(UserWarning, match=r"about 48 MiB .*layer, head"):
        page(1024)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page(512)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"layer": 2}, "the layer is 2; expected a whole number from 0 to 1"),
        ({"layer": 0, "head": 1}, "the head is 1; expected a whole number from 0 to 0"),
        ({"head": 0}, "head 0 is given without a layer"),
        ({"example": -1}, "the example is -1; expected a whole number from 0 to 1"),
        ({"layer": True}, "the layer is True; expected a whole number"),
    ],
)
def test_what_does_not_exist_is_refused(model, examples, chosen, message):
    assert_refused(message, attention_viewer, model, examples, **chosen)
