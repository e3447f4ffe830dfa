"""How models run: on which device, in which precision, on how many threads, and how many sequences at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from circuits.errors import BadInput
from circuits.model.transformer import AT_ONCE, Transformer
from circuits.utils.lazy import torch

# The arguments of ``circuits.model.from_pretrained``: the device, and the precision of weights and activations.
CHOSEN: ContextVar[Mapping[str, Any] | None] = ContextVar("chosen", default=None)


@contextmanager
def on_machine(
    device: str | None = None, dtype: str | None = None, batch_size: int | None = None, threads: int | None = None
) -> Iterator[None]:
    """Load and run models in some way within a ``with`` block; what is not given stays as it is.

    Raises:
        BadInput: PyTorch has no such device here.
    """
    if device is not None:
        try:
            torch.zeros(1, device=device).item()  # on "meta" there are no numbers
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).splitlines()[0].partition(": ")[0].partition("Expected one of")[0][:60] or "unknown"
            raise BadInput(f"the device {device!r} cannot be used ({reason}); expected cpu, cuda or mps") from error
    before = torch.get_num_threads() if threads is not None else 0
    if threads is not None:
        torch.set_num_threads(threads)
    given = {"device": device, "dtype": dtype and getattr(torch, dtype)}
    now = {**chosen(), **{name: value for name, value in given.items() if value}}
    tokens = CHOSEN.set(now), AT_ONCE.set(batch_size or AT_ONCE.get())
    try:
        yield
    finally:
        CHOSEN.reset(tokens[0])
        AT_ONCE.reset(tokens[1])
        if before:
            torch.set_num_threads(before)


def chosen() -> Mapping[str, Any]:
    """Return the device and the precision that were chosen, as arguments of ``circuits.model.from_pretrained``."""
    return CHOSEN.get() or {}


def placed(model: Transformer) -> Transformer:
    """Return a model of the toolkit on the device, and in the precision, that hold here."""
    for value in chosen().values():
        model = model.to(value, print_details=False)
    return model
