"""How the symbol of a slot that a head's path leaves out comes to the query. Interventions on attention rows.

Some heads follow a path on three of four slots. Where the chain stands at the fourth, the head finds nothing and rests
on a *default*. Does the model infer the fourth symbol from that? Three steps, each on the model itself:

    default    the head's rows at all queries become the default: does the model then answer the left-out slot's symbol,
               whichever symbol was asked for?
    without    with the default in place, one other row of attention at a time is taken out: which of them bring it?
    led        of these, a row that looks at the left-out symbol is led to another slot's symbol: do answers follow?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jaxtyping import Float, Int

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch, transformer_lens
from retrieval_interp.tasks.retrieval import RetrievalTask

MISSED = 0.25  # squared error to the left-out symbol that a row must cause when it is taken out, to be named
LOOKED = 0.5  # average attention on the left-out symbol with which a row is led elsewhere


@dataclass(frozen=True)
class Row:
    """The attention rows of a head at some positions."""

    head: Head
    positions: tuple[int, ...]
    name: str

    def __str__(self) -> str:
        return f"{self.head} at {self.name}"


@dataclass(frozen=True)
class Outcome:
    """What the model answers under an intervention.

    Attributes:
        step: ``none``, ``default``, ``without`` or ``led``.
        what: what was changed.
        nearest: the share of answers nearest to the symbol at each slot, ``[slot]``.
        error: squared error of all answers to the symbol at each slot, ``[slot]``.
        expected: the slot whose symbol is to be answered, if the story is right; -1 where each has its own.
        right: the share of answers nearest to the symbol of the expected slot, or to their own.
        looks_at: of the row at rest, and of one that was taken out, the position that it looks at most with the default
            in place, with its average attention there; and that without the default.
    """

    step: str
    what: str
    nearest: tuple[float, ...]
    error: tuple[float, ...]
    expected: int
    right: float
    looks_at: str = ""


@dataclass(frozen=True)
class Elimination:
    """The outcomes, for one path.

    Attributes:
        path: that is there on some slots only.
        left_out: the slot that was looked at.
        outcomes: in the order of the steps.
    """

    path: AttentionPath
    left_out: int
    outcomes: tuple[Outcome, ...]

    def table(self) -> pd.DataFrame:
        """A row for every intervention: shares of answers by slot, and how many are as expected."""
        return pd.DataFrame(
            [
                {
                    "step": one.step,
                    "what": one.what,
                    "looks at": one.looks_at,
                    **{f"nearest to slot {slot}": share for slot, share in enumerate(one.nearest)},
                    f"error to slot {self.left_out}": one.error[self.left_out],
                    "expected": "its own" if one.expected < 0 else f"slot {one.expected}",
                    "as expected": one.right,
                }
                for one in self.outcomes
            ]
        )

    @property
    def holds(self) -> bool:
        """Whether the default makes nine of ten answers the left-out symbol, and they follow wherever a row is led."""
        told = [one.right for one in self.outcomes if one.step in ("default", "led")]
        return len(told) > 1 and min(told) > 0.9


def elimination(
    model: transformer_lens.HookedTransformer,
    task: RetrievalTask,
    circuit: Circuit,
    *,
    n_examples: int = 256,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Elimination:
    """Find out how the symbol of a slot comes to the query that the circuit's lowest such path leaves out.

    Args:
        model: trained on ``task``.
        task: the problem; its pairs stand in blocks.
        circuit: of the model, with a path from the query to a pair's second member on some slots only.
        n_examples: to run.
        seed: of the examples.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: the circuit has no such path, or it does not fit the model.
    """
    examples = task.examples(n_examples, seed).to(next(model.parameters()).device)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    path, left_out = partial_path(circuit, task)
    there = _Answers(model, task, examples, path)
    resting = Row(path.head, tuple(there.queries), "query")
    default: Change = (resting, there.default(path.head, left_out))
    by_itself, resting_there = there.attention([]), there.attention([default])

    def looks_at(row: Row) -> str:
        looks = resting_there(row)
        most = int(looks.argmax())
        return f"position {most}: {looks[most]:.2f}, else {by_itself(row)[most]:.2f}"

    rested = replace(there.outcome("default", str(resting), [default], left_out), looks_at=looks_at(resting))
    outcomes = [there.outcome("none", "nothing", [], -1), rested]
    rows = [row for row in there.rows() if row != resting]
    for done, row in enumerate(rows, start=1):
        progress(done / len(rows))
        gone = there.outcome("without", str(row), [default, (row, None)], left_out)
        if gone.error[left_out] < MISSED:
            continue
        outcomes.append(replace(gone, looks_at=looks_at(row)))
        if resting_there(row)[there.second[left_out]] > LOOKED:
            for slot in range(task.n_chains):
                if slot != left_out and there.second[slot] <= min(row.positions):  # the mask lets nobody look ahead
                    what = f"{row}, to slot {slot}"
                    outcomes.append(there.outcome("led", what, [default, (row, there.second[slot])], slot))
    return Elimination(path, left_out, tuple(outcomes))


Change = tuple[Row, Any]  # a row, and what it becomes: weights, ``[query, key]``; a key; None for nothing


class _Answers:
    """One model's answers of one symbol on some examples, under changes of attention rows."""

    def __init__(
        self, model: transformer_lens.HookedTransformer, task: RetrievalTask, examples: Examples, path: AttentionPath
    ) -> None:
        self.model, self.task, self.examples = model, task, examples
        roles, N = examples.roles, task.n_chains
        self.part = task.loss_components.index(f"x{path.target.removeprefix('pair').removesuffix('.second')}")
        self.queries = sorted(set(roles["query"].flatten().tolist()))
        self.second = sorted(set(roles[path.target].flatten().tolist()))
        example = torch.arange(len(examples), device=roles.positions.device)[:, None]
        asked = roles["query"] - self.queries[0]
        own = examples.targets[example, asked, self.part]  # [example, chain, dim]
        slot = roles.group("slot", path.target)
        self.symbols = torch.empty_like(own).scatter_(1, slot[..., None].expand_as(own), own)  # [example, slot, dim]
        self.own_slot: Int[torch.Tensor, "example query"] = torch.empty_like(slot).scatter_(1, asked, slot)
        self.slots = range(N)

    def default(self, head: Head, slot: int) -> Float[torch.Tensor, "query key"]:
        """A head's average attention at each query whose chain stands at a slot."""
        found: list[torch.Tensor] = []

        def look(pattern: torch.Tensor, hook: transformer_lens.hook_points.HookPoint) -> None:
            found.append(pattern[:, head.index, self.queries])

        self._run([], [(_hook(head.layer), look)])
        there = (self.own_slot == slot).to(found[0])
        return torch.einsum("eqk,eq->qk", found[0], there) / there.sum(dim=0)[:, None]

    def rows(self) -> list[Row]:
        """Every head's rows at the queries, and at each position of the block that is asked for."""
        cfg = self.model.cfg
        heads = [Head(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
        block = range(self.second[0] - 1, self.second[-1] + 1)
        places = [("query", tuple(self.queries)), *((f"position {place}", (place,)) for place in block)]
        return [Row(head, positions, name) for head in heads for name, positions in places]

    def attention(self, changes: Sequence[Change]) -> Callable[[Row], Float[torch.Tensor, " key"]]:
        """What a row looks at, on average."""
        found: dict[int, torch.Tensor] = {}

        def look(pattern: torch.Tensor, hook: transformer_lens.hook_points.HookPoint) -> None:
            found[hook.layer()] = pattern.mean(dim=0)

        self._run(changes, [(_hook(layer), look) for layer in range(self.model.cfg.n_layers)])
        return lambda row: found[row.head.layer][row.head.index, [*row.positions]].mean(dim=0)

    def outcome(self, step: str, what: str, changes: Sequence[Change], expected: int) -> Outcome:
        """What is answered."""
        answers = self.task.answers(self._run(changes))[:, :, self.part]
        errors = (answers[:, :, None] - self.symbols[:, None]).square().mean(dim=-1)  # [example, query, slot]
        nearest = errors.argmin(dim=-1)
        shares = tuple((nearest == slot).float().mean().item() for slot in self.slots)
        wanted = self.own_slot if expected < 0 else torch.full_like(nearest, expected)
        right = (nearest == wanted).float().mean().item()
        return Outcome(step, what, shares, tuple(errors.mean(dim=(0, 1)).tolist()), expected, right)

    def _run(self, changes: Sequence[Change], hooks: Sequence[tuple[str, Callable[..., object]]] = ()) -> torch.Tensor:
        made = [(_hook(row.head.layer), partial(_changed, row=row, to=to)) for row, to in changes]
        with torch.no_grad():
            return self.model.run_with_hooks(self.examples.inputs, fwd_hooks=[*made, *hooks])


def _hook(layer: int) -> str:
    from circuits.model.patterns import pattern_hook

    return pattern_hook(layer)


def _changed(
    pattern: Float[torch.Tensor, "batch head query key"],
    hook: transformer_lens.hook_points.HookPoint,
    row: Row,
    to: Any,
) -> Float[torch.Tensor, "batch head query key"]:
    pattern, positions = pattern.clone(), [*row.positions]
    pattern[:, row.head.index, positions] = to.to(pattern) if isinstance(to, torch.Tensor) else 0.0
    if isinstance(to, int):
        pattern[:, row.head.index, positions, to] = 1.0
    return pattern


def partial_path(circuit: Circuit, task: RetrievalTask) -> tuple[AttentionPath, int]:
    """The lowest path from the query to a second member that leaves out a slot, and the first slot left out.

    Raises:
        BadInput: there is none.
    """
    symbols = {f"pair{k}.second": f"x{k}" for k in range(1, task.n_steps + 1)}
    for path in circuit.paths:
        condition = circuit.condition(path)
        if (
            path.source == "query"
            and symbols.get(path.target) in task.loss_components
            and condition
            and condition.at == path.target
        ):
            rows = circuit.heads[path.head].where  # type: ignore[attr-defined]
            covered = {label for (source, _), one in rows if source == "query" for label in one.labels}
            left = sorted({*range(task.n_chains)} - covered)
            if left and condition.group == "slot":
                return path, left[0]
    raise BadInput("no path of the circuit leads from the query to a second member on some slots only")
