"""Texts with slots, as tokens: every slot is one token, so that all texts of a template have the same length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from jaxtyping import Int
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from circuits.errors import BadInput
from circuits.utils.lazy import torch, transformers

UNKNOWN = "<unknown>"


def token_ids(
    tokenizer: transformers.PreTrainedTokenizerBase, text: str, *, bos: str = "default"
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of a text, and for each token the index of its first character and one past its last.

    Args:
        tokenizer: the tokenizer.
        text: the text.
        bos: what stands before a text: ``default``, what the tokenizer puts there, such as a start token or nothing;
            ``none``; or a token.

    Raises:
        BadInput: the tokenizer does not know a word, leaves out a character, or gives no character offsets; or ``bos``
            is none of its tokens.
    """
    if not tokenizer.is_fast:
        raise BadInput(f"{type(tokenizer).__name__} gives no character offsets; expected a fast tokenizer")
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=bos == "default")
    ids, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
    if bos not in ("default", "none"):
        if bos not in tokenizer.get_vocab():
            raise BadInput(f"the start token {bos!r} is none of the tokenizer's; expected default, none or a token")
        ids, offsets = [tokenizer.get_vocab()[bos], *ids], [(0, 0), *offsets]
    if ids and ids[-1] == tokenizer.eos_token_id and offsets[-1][0] == offsets[-1][1] and len(ids) > 1:
        ids, offsets = ids[:-1], offsets[:-1]  # the answer follows
    read = [(token, first, end) for token, (first, end) in zip(ids, offsets, strict=True) if first < end]
    for token, first, end in read:  # the unknown token may also be an ordinary token
        if token == tokenizer.unk_token_id and text[first:end] != tokenizer.unk_token:
            raise BadInput(f"the tokenizer does not know {text[first:end]!r}")
    lost = {*range(len(text))}.difference(*(range(first, end) for _, first, end in read))
    missed = next((text[place] for place in sorted(lost) if not text[place].isspace()), None)
    if missed is not None:
        raise BadInput(f"the tokenizer leaves out {missed!r}")
    return ids, offsets


@dataclass(frozen=True)
class Template:
    """A text with slots.

    Attributes:
        tokens: the tokens with some word in every slot, ``[pos]``.
        places: the position of every slot.
    """

    tokens: Int[torch.Tensor, " pos"]
    places: Mapping[str, int]

    @classmethod
    def of(
        cls,
        tokenizer: transformers.PreTrainedTokenizerBase,
        text: str,
        words: Mapping[str, Mapping[str, int]],
        bos: str = "default",
    ) -> Template:
        """Make a template.

        Args:
            tokenizer: the tokenizer.
            text: the text, with its slots in braces.
            words: for every slot, its words, each with the token that it is.
            bos: what stands before the text, as ``token_ids``.

        Raises:
            BadInput: the tokenizer does not know a word, or a slot is not the token that its word is.
        """
        written, spans, word = "", {}, {slot: next(iter(some)) for slot, some in words.items()}
        for fixed, slot, _, _ in Formatter().parse(text):
            written += fixed
            if slot is not None:
                spans[slot] = range(len(written), len(written) + len(word[slot]))
                written += word[slot]
        ids, offsets = token_ids(tokenizer, written, bos=bos)
        places = {}
        for slot, span in spans.items():
            here = [at for at, (first, end) in enumerate(offsets) if first < span.stop and end > span.start]
            if [ids[at] for at in here] != [words[slot][word[slot]]]:
                raise BadInput(f"the tokenizer splits or joins {word[slot]!r} in {written!r}; expected one token")
            places[slot] = here[0]
        return cls(torch.tensor(ids), places)

    def filled(self, words: Mapping[str, Int[torch.Tensor, " n"]]) -> Int[torch.Tensor, "n pos"]:
        """Return the text with tokens in its slots."""
        tokens = self.tokens.repeat(len(next(iter(words.values()))), 1)
        for slot, some in words.items():
            tokens[:, self.places[slot]] = some
        return tokens


def word_tokenizer(words: Sequence[str]) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word, number, punctuation mark and line break; it adds no tokens."""
    vocabulary = {one: i for i, one in enumerate(dict.fromkeys([*words, UNKNOWN]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, UNKNOWN))
    apart = [pre_tokenizers.Split(Regex(" +"), "removed"), pre_tokenizers.Split(Regex("\\n|[?,.=]"), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(apart)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, pad_token=UNKNOWN)
