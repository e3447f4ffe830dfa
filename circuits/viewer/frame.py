"""The contents of a viewer: the attention of some heads on one example."""

from typing import Any

from circuits.circuit import Head
from circuits.heads import check_choice, check_number
from circuits.model.patterns import attention_patterns
from circuits.model.transformer import Transformer
from circuits.results import Result
from circuits.task import Examples

VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}  # circuitsvis omits white space


class Frame(Result):
    """Attention patterns of some heads on one example, as viewer.js reads them.

    Attributes:
        step: the training step of the model, if there are several frames.
        tokens: a label for each position: ``instance:role``, after the token if the model has a tokenizer. White space
            in tokens is visible (``·`` for a space), and a token that is no text by itself is shown as ``#399``.
        heads: the names of the heads.
        attention: the patterns, ``[head][query][key]``, rounded to the three decimals that a viewer shows.
    """

    step: int | None
    tokens: list[str]
    heads: list[str]
    attention: list[list[list[float]]]


def attention_frame(
    model: Transformer, examples: Examples, example: int, layer: int | None, head: int | None, step: int | None = None
) -> Frame:
    """Return the attention on one example, of all heads, the heads of a layer, or one head.

    Raises:
        BadInput: there is no such example, layer or head, or a head is given without its layer.
    """
    check_number("example", example, len(examples))
    check_choice(layer, head, model.cfg.n_layers, model.cfg.n_heads)
    one = examples.take(slice(example, example + 1))
    shown = {
        str(Head(at, index)): patterns[0, index].double().cpu().numpy().round(3).tolist()
        for at, patterns in attention_patterns(model, one)
        for index in range(model.cfg.n_heads)
        if layer in (None, at) and head in (None, index)
    }
    return Frame(step=step, tokens=_labels(model, one), heads=[*shown], attention=[*shown.values()])


def _labels(model: Transformer, one: Examples) -> list[str]:
    """Return a label for each position: token and role if known, or the position."""
    labels = one.roles.labels(0, one.inputs.shape[1])
    if model.tokenizer is None:
        return labels
    tokens = [_visible(model.tokenizer, number) for number in one.inputs[0].tolist()]
    return [token if label.isdecimal() else f"{token}|{label}" for token, label in zip(tokens, labels, strict=True)]


def _visible(tokenizer: Any, number: int) -> str:
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
