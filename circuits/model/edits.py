"""PyTorch's hooks on a layer: they change its attention patterns, its heads and its MLP, within a ``with`` block."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from circuits.errors import BadInput

Edit = Callable[[Tensor], Tensor]  # attention patterns of a layer, [run, head, query, key], before and after the change
# Changes of the queries ``q``, keys ``k``, values ``v`` and outputs ``z`` of a layer's heads, [run, pos, head, d_head].
EditHeads = Mapping[str, Callable[[Tensor], Tensor]]
EditMLP = Callable[[Tensor, Tensor], Tensor]  # the input and the output of an MLP, and its output after the change


@contextmanager
def edited(block: Any, edit: Edit | None, heads: EditHeads | None = None, mlp: EditMLP | None = None) -> Iterator[None]:
    """Change the patterns, the queries, keys, values and outputs of heads, and the MLP of a layer.

    Raises:
        BadInput: nothing went through a hook point.
    """
    attention = block.attn
    d_head = attention.cfg.d_head if hasattr(attention, "cfg") else attention.config.d_head
    called: set[str] = set()

    def changed(name: str, change: Edit) -> Callable[..., Tensor]:
        def put(module: nn.Module, inputs: Any, value: Tensor) -> Tensor:
            called.add(name)
            # some architectures have all heads side by side, and some call view
            by_head = value if name == "pattern" else value.reshape(*value.shape[:2], -1, d_head)
            return change(by_head).reshape(value.shape).contiguous()

        return put

    def put_mlp(module: nn.Module, by_place: Any, by_name: Any, output: Any) -> Any:
        assert mlp is not None
        into = residual_in(by_place, by_name)
        if isinstance(output, tuple):  # a mixture of experts also returns what its router chose
            return (mlp(into, output[0]), *output[1:])
        return mlp(into, output)

    changes = {**({} if edit is None else {"pattern": edit}), **(heads or {})}
    with ExitStack() as stack:
        for name, change in changes.items():
            point = getattr(attention, f"hook_{name}")
            stack.enter_context(point.register_forward_hook(changed(name, change)))
        if mlp is not None:
            stack.enter_context(block.mlp.register_forward_hook(put_mlp, with_kwargs=True))
        yield
    if called != {*changes}:
        raise BadInput("the model was run without its hooks, so that nothing was ablated; expected an uncompiled model")


def residual_in(by_place: tuple[Any, ...], by_name: dict[str, Any]) -> Tensor:
    """Return the residual stream among the arguments of a layer, a norm or an MLP."""
    return by_place[0] if by_place else by_name["hidden_states"]


def kept(seen: list[Tensor]) -> Edit:
    """Return a change that changes nothing, and keeps what it sees in a list."""

    def keep(value: Tensor) -> Tensor:
        seen.append(value)
        return value

    return keep
