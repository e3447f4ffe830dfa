"""Tokens as text."""

from typing import Any

VISIBLE = {" ": "·", "\xa0": "⍽", "\n": "⏎", "\t": "⇥"}  # pages omit white space


def visible(tokenizer: Any, number: int) -> str:
    """Return the text of a token, or its number if it is unknown to the tokenizer or part of a letter's bytes."""
    try:
        piece = tokenizer.convert_ids_to_tokens(number)
        text = tokenizer.decode([number], clean_up_tokenization_spaces=False)
    except Exception:  # tokenizers written in Python raise anything for a token that they do not know
        return f"#{number}"
    if piece and piece.startswith("▁"):  # SentencePiece's space, which decoding drops at the beginning
        text = piece.replace("▁", " ")
    unknown, its_number = (getattr(tokenizer, name, None) for name in ("unk_token", "unk_token_id"))
    if piece is None or (piece == unknown and number != its_number) or not text or "\ufffd" in text:
        return f"#{number}"
    return "".join(VISIBLE.get(one) or (one if one.isprintable() else ascii(one)[1:-1]) for one in text)
