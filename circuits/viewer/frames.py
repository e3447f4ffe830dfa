"""The contents of a viewer: the attention of some heads on one example."""

from dataclasses import dataclass
from typing import Any

from circuits.circuit import Head
from circuits.heads import check_choice, check_number
from circuits.model.patterns import attention_patterns
from circuits.model.transformer import Transformer
from circuits.task import Examples

VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}  # circuitsvis omits white space


@dataclass(frozen=True)
class Frame:
    """Attention patterns of some heads on one example.

    Attributes:
        tokens: a label for each position: ``instance:role``, after the token if the model has a tokenizer. White space
            in tokens is visible (``·`` for a space), and a token that is no text of its own is shown as ``#399``.
        heads: the heads of the patterns.
        attention: the patterns, ``[head][query][key]``, rounded to the three decimals that a viewer shows.
        step: the training step of the model, if there are several frames.
    """

    tokens: list[str]
    heads: tuple[Head, ...]
    attention: list[list[list[float]]]
    step: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the frame in the form that viewer.js reads."""
        return {
            "label": "" if self.step is None else f"step {self.step:,}",
            "tokens": self.tokens,
            "attention": self.attention,
            "attentionHeadNames": [str(head) for head in self.heads],
        }


def chosen(model: Transformer, layer: int | None, head: int | None) -> tuple[Head, ...]:
    """Return all heads of a model, the heads of a layer, or one head.

    Raises:
        BadInput: the model has no such layer or head, or a head is given without its layer.
    """
    cfg = model.cfg
    check_choice(layer, head, cfg.n_layers, cfg.n_heads)
    layers = range(cfg.n_layers) if layer is None else [layer]
    heads = range(cfg.n_heads) if head is None else [head]
    return tuple(Head(layer, head) for layer in layers for head in heads)


def frame(
    model: Transformer, examples: Examples, example: int, heads: tuple[Head, ...], step: int | None = None
) -> Frame:
    """Return the attention of some heads on one example.

    Raises:
        BadInput: there is no such example.
    """
    check_number("example", example, len(examples))
    one = examples.take(slice(example, example + 1))
    patterns = dict(attention_patterns(model, one))
    attention = [patterns[head.layer][0, head.index].double().cpu().numpy().round(3).tolist() for head in heads]
    return Frame(_labels(model, one), heads, attention, step)


def _labels(model: Transformer, one: Examples) -> list[str]:
    """Return a label for each position: token and role if known, or the position."""
    labels = one.roles.labels(0, one.inputs.shape[1])
    if model.tokenizer is None:
        return labels
    tokens = [_shown(model.tokenizer, number) for number in one.inputs[0].tolist()]
    return [token if label.isdecimal() else f"{token}|{label}" for token, label in zip(tokens, labels, strict=True)]


def _shown(tokenizer: Any, number: int) -> str:
    """Return the text of a token, or its number if it is unknown to the tokenizer or part of a letter's bytes."""
    try:
        own = tokenizer.convert_ids_to_tokens(number)
        text = tokenizer.decode([number], clean_up_tokenization_spaces=False)
    except Exception:  # tokenizers written in Python raise anything for a token that they do not know
        return f"#{number}"
    if own and own.startswith("▁"):  # SentencePiece's space, which decoding drops at the beginning
        text = own.replace("▁", " ")
    its_unknown, as_number = (getattr(tokenizer, name, None) for name in ("unk_token", "unk_token_id"))
    unknown = own is None or (own == its_unknown and number != as_number)
    if unknown or not text or "\ufffd" in text:
        return f"#{number}"
    return "".join(VISIBLE.get(one) or (one if one.isprintable() else ascii(one)[1:-1]) for one in text)
