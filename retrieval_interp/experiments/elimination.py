"""How a symbol reaches the query if the head's path omits its slot, by interventions on attention rows.

Some heads have a path on three of four slots only. If the chain is at the fourth slot, such a head finds no target, and
its attention is a *default* row. Does the model infer the fourth symbol from the default row? The test has three steps.
All other attention is the model's own.

    default    The head's rows at all queries are replaced with the default row. Does the model then answer with the
               symbol of the omitted slot, whichever symbol was asked for?
    without    With the default row in place, one other attention row at a time is removed. Which rows are needed?
    led        Of these, each row that attends to the omitted symbol is retargeted to the symbol of another slot. Do the
               answers follow?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jaxtyping import Float, Int

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.tasks.retrieval import RetrievalTask

NEEDED = 0.25  # a row is needed if the squared error to the omitted symbol without the row is at least this
ATTENDS = 0.5  # a needed row is retargeted if its average attention to the omitted symbol is above this


@dataclass(frozen=True)
class Row:
    """The attention rows of a head at some positions, which have a name."""

    head: Head
    positions: tuple[int, ...]
    name: str

    def __str__(self) -> str:
        return f"{self.head} at {self.name}"


@dataclass(frozen=True)
class Outcome:
    """The model's answers under an intervention.

    Attributes:
        step: the step: ``none``, ``default``, ``without`` or ``led``.
        what: the rows that were changed.
        nearest: the share of answers nearest to the symbol at each slot, ``[slot]``.
        error: the squared error of all answers to the symbol at each slot, ``[slot]``.
        expected: the slot whose symbol is the expected answer if the model infers as described above; -1 if each query
            should get its own symbol.
        as_expected: the share of answers nearest to the expected symbol.
        looks_at: for the default row and for a removed row, the position with the most attention when the default row
            is in place; the average attention there; and the average attention there without the default row.
    """

    step: str
    what: str
    nearest: tuple[float, ...]
    error: tuple[float, ...]
    expected: int
    as_expected: float
    looks_at: str = ""


@dataclass(frozen=True)
class Elimination:
    """The outcomes for one path.

    Attributes:
        path: the path, which holds on some slots only.
        left_out: the omitted slot that was examined.
        outcomes: the outcomes, in the order of the steps.
    """

    path: AttentionPath
    left_out: int
    outcomes: tuple[Outcome, ...]

    def table(self) -> pd.DataFrame:
        """Return one row for every intervention: the shares of answers by slot, and the share that is as expected."""
        return pd.DataFrame(
            [
                {
                    "step": one.step,
                    "what": one.what,
                    "looks at": one.looks_at,
                    **{f"nearest to slot {slot}": share for slot, share in enumerate(one.nearest)},
                    f"error to slot {self.left_out}": one.error[self.left_out],
                    "expected": "its own" if one.expected < 0 else f"slot {one.expected}",
                    "as expected": one.as_expected,
                }
                for one in self.outcomes
            ]
        )

    @property
    def holds(self) -> bool:
        """Whether over 90% of answers are as expected with the default row, and wherever a row is redirected."""
        shares = [one.as_expected for one in self.outcomes if one.step in ("default", "led")]
        return len(shares) > 1 and min(shares) > 0.9


def elimination(
    model: Transformer,
    task: RetrievalTask,
    circuit: Circuit,
    *,
    n_examples: int = 256,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Elimination:
    """Test how the symbol of an omitted slot reaches the query, for the lowest path that omits a slot.

    Args:
        model: a model trained on ``task``.
        task: the task, with pairs in blocks.
        circuit: the model's circuit, with a path from the query to the second member of a pair on some slots only.
        n_examples: the number of examples.
        seed: the seed of the examples.
        progress: is called with the finished share, 0 to 1.

    Raises:
        BadInput: the circuit has no such path, or it does not fit the model.
    """
    examples = task.examples(n_examples, seed).to(next(model.parameters()).device)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    path, left_out = partial_path(circuit, task)
    answers = _Answers(model, task, examples, path)
    changed = Row(path.head, tuple(answers.queries), "query")
    default: Change = (changed, answers.default(path.head, left_out))
    unchanged, with_default = answers.attention([]), answers.attention([default])

    def looks_at(row: Row) -> str:
        attention = with_default(row)
        most = int(attention.argmax())
        return f"position {most}: {attention[most]:.2f}, else {unchanged(row)[most]:.2f}"

    first = replace(answers.outcome("default", str(changed), [default], left_out), looks_at=looks_at(changed))
    outcomes = [answers.outcome("none", "nothing", [], -1), first]
    rows = [row for row in answers.rows() if row != changed]
    for done, row in enumerate(rows, start=1):
        progress(done / len(rows))
        removed = answers.outcome("without", str(row), [default, (row, None)], left_out)
        if removed.error[left_out] < NEEDED:
            continue
        outcomes.append(replace(removed, looks_at=looks_at(row)))
        if with_default(row)[answers.second[left_out]] > ATTENDS:
            for slot in range(task.n_chains):
                # The causal mask allows only earlier positions.
                if slot != left_out and answers.second[slot] <= min(row.positions):
                    what = f"{row}, to slot {slot}"
                    outcomes.append(answers.outcome("led", what, [default, (row, answers.second[slot])], slot))
    return Elimination(path, left_out, tuple(outcomes))


# A row and its new attention: weights ``[query, key]``, a position that gets all attention, or None for no attention.
Change = tuple[Row, Any]


class _Answers:
    """A model's answers for one symbol on some examples, with attention rows changed."""

    def __init__(self, model: Transformer, task: RetrievalTask, examples: Examples, path: AttentionPath) -> None:
        self.model, self.task, self.examples = model, task, examples
        roles = examples.roles
        self.component = task.loss_components.index(f"x{path.target.removeprefix('pair').removesuffix('.second')}")
        self.queries = sorted(set(roles["query"].flatten().tolist()))
        self.second = sorted(set(roles[path.target].flatten().tolist()))
        example = torch.arange(len(examples), device=roles.positions.device)[:, None]
        asked = roles["query"] - self.queries[0]
        own = examples.targets[example, asked, self.component]  # [example, chain, dim]
        slot = roles.group("slot", path.target)
        self.symbols = torch.empty_like(own).scatter_(1, slot[..., None].expand_as(own), own)  # [example, slot, dim]
        self.own_slot: Int[torch.Tensor, "example query"] = torch.empty_like(slot).scatter_(1, asked, slot)

    def default(self, head: Head, slot: int) -> Float[torch.Tensor, "query key"]:
        """Return a head's average attention at each query, over the examples in which its chain is at a slot."""
        found: list[torch.Tensor] = []

        def look(pattern: torch.Tensor, hook: Any) -> None:
            found.append(pattern[:, head.index, self.queries])

        self._run([], [(_hook(head.layer), look)])
        at_slot = (self.own_slot == slot).to(found[0])
        return torch.einsum("eqk,eq->qk", found[0], at_slot) / at_slot.sum(dim=0)[:, None]

    def rows(self) -> list[Row]:
        """Return every head's rows at the queries, and at each position of the block with the symbol in question."""
        cfg = self.model.cfg
        heads = [Head(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
        block = range(self.second[0] - 1, self.second[-1] + 1)
        places = [("query", tuple(self.queries)), *((f"position {place}", (place,)) for place in block)]
        return [Row(head, positions, name) for head in heads for name, positions in places]

    def attention(self, changes: Sequence[Change]) -> Callable[[Row], Float[torch.Tensor, " key"]]:
        """Return a function that gives the average attention of a row under some changes."""
        found: dict[int, torch.Tensor] = {}

        def look(pattern: torch.Tensor, hook: Any) -> None:
            found[hook.layer()] = pattern.mean(dim=0)

        self._run(changes, [(_hook(layer), look) for layer in range(self.model.cfg.n_layers)])
        return lambda row: found[row.head.layer][row.head.index, [*row.positions]].mean(dim=0)

    def outcome(self, step: str, what: str, changes: Sequence[Change], expected: int) -> Outcome:
        """Run the model with some changes, and compare its answers with the symbol at each slot."""
        answers = self.task.answers(self._run(changes))[:, :, self.component]
        errors = (answers[:, :, None] - self.symbols[:, None]).square().mean(dim=-1)  # [example, query, slot]
        nearest = errors.argmin(dim=-1)
        shares = tuple((nearest == slot).float().mean().item() for slot in range(self.task.n_chains))
        wanted = self.own_slot if expected < 0 else torch.full_like(nearest, expected)
        as_expected = (nearest == wanted).float().mean().item()
        return Outcome(step, what, shares, tuple(errors.mean(dim=(0, 1)).tolist()), expected, as_expected)

    def _run(self, changes: Sequence[Change], hooks: Sequence[tuple[str, Callable[..., object]]] = ()) -> torch.Tensor:
        made = [(_hook(row.head.layer), partial(_changed, row=row, to=to)) for row, to in changes]
        with torch.no_grad():
            return self.model.run_with_hooks(self.examples.inputs, fwd_hooks=[*made, *hooks])


def _hook(layer: int) -> str:
    from circuits.model.patterns import pattern_hook

    return pattern_hook(layer)


def _changed(
    pattern: Float[torch.Tensor, "batch head query key"],
    hook: Any,
    row: Row,
    to: Any,
) -> Float[torch.Tensor, "batch head query key"]:
    pattern, positions = pattern.clone(), [*row.positions]
    pattern[:, row.head.index, positions] = to.to(pattern) if isinstance(to, torch.Tensor) else 0.0
    if isinstance(to, int):
        pattern[:, row.head.index, positions, to] = 1.0
    return pattern


def partial_path(circuit: Circuit, task: RetrievalTask) -> tuple[AttentionPath, int]:
    """Return the lowest path from the query to a second member that omits a slot, and the first omitted slot.

    Raises:
        BadInput: the circuit has no such path.
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
            omitted = sorted({*range(task.n_chains)} - covered)
            if omitted and condition.group == "slot":
                return path, omitted[0]
    raise BadInput("no path of the circuit leads from the query to a second member on some slots only")
