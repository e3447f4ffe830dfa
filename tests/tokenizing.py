"""Tokenizers that are made here: pairs of bytes, as language models have them, and one token for each character."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast


def byte_pairs(texts: Iterable[str], size: int, *special: str) -> Tokenizer:
    """Byte-level pair encoding, trained on texts: a frequent word is one token together with the space before it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, special_tokens=[*special])
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def characters(texts: Iterable[str], **special: str) -> PreTrainedTokenizerFast:
    """A tokenizer in which every character of the texts is a token."""
    tokenizer = Tokenizer(models.WordLevel({one: i for i, one in enumerate(sorted({*"".join(texts)}))}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
