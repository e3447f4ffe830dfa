"""Beyond the training range: a model and its circuit under distribution shifts, against the circuit's predictions.

The model, and the circuit in the place of all attention, answer examples that differ from those of training in one way
(shifts.py). For each, the circuit predicts which symbols survive (shift_predictions.py). If the model breaks where the
circuit in place of attention survives, heads do not find their targets any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Float

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.losses.mean import Mean, per_example
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.shift_predictions import Prediction, predicted
from retrieval_interp.experiments.shifts import Shift, ShiftedExamples, shifts_of
from retrieval_interp.tasks.retrieval import RetrievalTask

FILES = ("beyond_training.csv", "beyond_training.html")
RIGHT = 0.9  # a symbol survives if the accuracy is above this; with one of four slots broken it is about 0.8
APART = 0.1  # sentences split the accuracy by slot if the slots differ by more than this
AT_ONCE = 128  # examples per batch


@dataclass(frozen=True)
class Scores:
    """How well one symbol is answered, over all counted chains or those of one slot.

    Attributes:
        loss: the squared error.
        accuracy: the share of answers to which no other symbol of the example is nearer than the right one.
    """

    loss: Mean
    accuracy: Mean

    @property
    def outcome(self) -> str:
        """``survives``, ``breaks``, or ``undecided`` within three standard errors of an accuracy of ``RIGHT``."""
        if self.accuracy.near(RIGHT):
            return "undecided"
        return "survives" if self.accuracy.mean > RIGHT else "breaks"


@dataclass(frozen=True)
class SymbolScores:
    """The scores of one symbol.

    Attributes:
        total: over all slots.
        by_slot: by the slot of the pair that holds the symbol.
    """

    total: Scores
    by_slot: Mapping[int, Scores]

    def __str__(self) -> str:
        means = [own.accuracy.mean for own in self.by_slot.values()]
        lowest, highest = min(means), max(means)
        split = f" ({lowest:.2f} to {highest:.2f} by slot)" if highest - lowest > APART else ""
        return f"{self.total.accuracy}{split}"


@dataclass(frozen=True)
class ShiftOutcome:
    """What happened under one shift.

    Attributes:
        shift: the shift.
        prediction: the circuit's prediction.
        model: the scores of the model, by symbol.
        circuit: the scores with the circuit in the place of all attention; None if it cannot be put there.
        refused: why it cannot.
    """

    shift: Shift
    prediction: Prediction
    model: Mapping[str, SymbolScores]
    circuit: Mapping[str, SymbolScores] | None
    refused: str = ""

    def expected(self, symbol: str) -> str:
        """Return ``survives`` or ``breaks``: what the circuit predicts for a symbol."""
        return "survives" if symbol in self.prediction.survives else "breaks"

    def agreement(self, symbol: str) -> str:
        """Return ``agrees``, ``disagrees`` or ``undecided``: the model against the prediction."""
        outcome = self.model[symbol].total.outcome
        if outcome == "undecided":
            return outcome
        return "agrees" if outcome == self.expected(symbol) else "disagrees"

    def sentence(self) -> str:
        """Return the prediction and what happened, in words."""
        broken = [symbol for symbol in self.model if symbol not in self.prediction.survives]
        parts = ((self.prediction.survives, "survive"), (broken, "break"))
        said = [f"{', '.join(symbols)} should {what}" for symbols, what in parts if symbols]
        model = ", ".join(f"{symbol} {own} {self.agreement(symbol)}" for symbol, own in self.model.items())
        circuit = ", ".join(f"{symbol} {own}" for symbol, own in (self.circuit or {}).items())
        return (
            f"{self.shift.name} ({self.shift.what}): {' and '.join(said)}, because {self.prediction.reason}. "
            f"Accuracy of the model: {model}. "
            + (f"With the circuit in place: {circuit}." if circuit else f"The circuit does not fit: {self.refused}.")
        )


@dataclass(frozen=True)
class BeyondTraining:
    """What happened under every shift."""

    outcomes: tuple[ShiftOutcome, ...]

    def counts(self) -> dict[str, int]:
        """Return how many symbols under how many shifts agree, disagree and are undecided; training is no shift."""
        said = [one.agreement(symbol) for one in self.outcomes[1:] for symbol in one.model]
        return {name: said.count(name) for name in ("agrees", "disagrees", "undecided")}

    @property
    def solved(self) -> bool:
        """Whether every symbol survives without any shift."""
        return all(scores.total.outcome == "survives" for scores in self.outcomes[0].model.values())

    @property
    def holds(self) -> bool:
        """Whether the model solves the task, and every prediction agrees."""
        counts = self.counts()
        return self.solved and not counts["disagrees"] and not counts["undecided"]

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in words, with the summary first."""
        counts = self.counts()
        summary = (
            f"Of {sum(counts.values())} predictions, one for every shift and symbol, {counts['agrees']} agree with the "
            f"model, {counts['disagrees']} disagree and {counts['undecided']} are undecided."
        )
        unsolved = () if self.solved else ("The model does not solve the task without a shift, so these say little.",)
        return (*unsolved, summary, *(one.sentence() for one in self.outcomes))

    def table(self) -> pd.DataFrame:
        """Return one row for each shift, run (``model`` or ``circuit``), symbol and slot; slot ``all`` is the total."""
        rows = []
        for one in self.outcomes:
            for run, scores in (("model", one.model), ("circuit", one.circuit or {})):
                for symbol, own in scores.items():
                    for slot, each in (("all", own.total), *own.by_slot.items()):
                        row = {"shift": one.shift.name, "run": run, "symbol": symbol, "slot": slot}
                        for name, mean in (("loss", each.loss), ("accuracy", each.accuracy)):
                            row |= {name: mean.mean, f"{name}_error": mean.standard_error}
                        rows.append(
                            {**row, "examples": each.loss.n_examples, "outcome": each.outcome}
                            | {"predicted": one.expected(symbol)}
                        )
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Return the counts, the predictions, the numbers and the findings in words."""
        shifts = [
            {
                "shift": one.shift.name,
                "what": one.shift.what,
                "predicted": {symbol: one.expected(symbol) for symbol in one.model},
                "because": one.prediction.reason,
                "agreement": {symbol: one.agreement(symbol) for symbol in one.model},
                "model": _plain(one.model),
                "circuit": _plain(one.circuit) if one.circuit else None,
                "refused": one.refused or None,
            }
            for one in self.outcomes
        ]
        return {"solved": self.solved, **self.counts(), "shifts": shifts, "sentences": [*self.sentences()]}


def beyond_training(
    model: Transformer,
    task: RetrievalTask,
    circuit: Circuit,
    *,
    n_examples: int = 512,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> BeyondTraining:
    """Run a model and its circuit under every shift, and compare the model with the circuit's predictions.

    Args:
        model: a model trained on ``task``.
        task: the task, with pairs in blocks.
        circuit: the model's circuit.
        n_examples: the number of examples under each shift.
        seed: the seed of the examples.
        progress: is called with the finished share, 0 to 1.

    Raises:
        BadInput: the task cannot be shifted, or the circuit does not fit the model.
    """
    from circuits.ablation.hooks import run_ablated
    from circuits.model.transformer import run
    from retrieval_interp.models.build import with_context

    shifts, outcomes = shifts_of(task), []
    circuit = Circuit(circuit.heads, circuit.name)  # without the lines of its file, which messages would name
    circuit.check(task.examples(1, seed).roles, model.cfg.n_layers, model.cfg.n_heads)
    for place, shift in enumerate(shifts):
        shifted = shift.examples(task, n_examples, seed)
        own = model if shifted.task.n_positions <= model.cfg.n_ctx else with_context(model, shifted.task.n_positions)
        answered = scores_of(shifted, partial(run, own))
        progress((place + 0.5) / len(shifts))
        replaced, refused = None, ""
        try:
            replaced = scores_of(shifted, partial(run_ablated, own, circuit))
        except BadInput as error:
            if not place:
                raise
            refused = str(error)
        outcomes.append(ShiftOutcome(shift, predicted(circuit, task, shift), answered, replaced, refused))
        progress((place + 1) / len(shifts))
    return BeyondTraining(tuple(outcomes))


def scores_of(
    shifted: ShiftedExamples, outputs_of: Callable[[Examples], Float[torch.Tensor, "batch pos d_out"]]
) -> dict[str, SymbolScores]:
    """Return the scores of every symbol.

    Args:
        shifted: the examples.
        outputs_of: returns the outputs for a batch of them.
    """
    n = len(shifted.examples)
    with torch.no_grad():
        batches = [outputs_of(shifted.examples.take(slice(at, at + AT_ONCE))) for at in range(0, n, AT_ONCE)]
    loss, right = _errors(shifted, torch.cat(batches))
    slots = shifted.slots[:, shifted.counted]
    found = {}
    for place, symbol in enumerate(shifted.task.loss_components):
        of_all = torch.ones_like(slots[..., place], dtype=torch.bool)
        total, *by_slot = (
            Scores(*(Mean.of(per_example(values[..., place], there.float())) for values in (loss, right)))
            for there in (of_all, *(slots[..., place] == slot for slot in range(shifted.task.n_chains)))
        )
        found[symbol] = SymbolScores(total, dict(enumerate(by_slot)))
    return found


def _errors(
    shifted: ShiftedExamples, outputs: Float[torch.Tensor, "batch pos d_out"]
) -> tuple[Float[torch.Tensor, "batch chain component"], Float[torch.Tensor, "batch chain component"]]:
    """Return the squared error of every counted answer, and whether the nearest symbol of the example is right."""
    answers = shifted.answers(outputs)[:, shifted.counted]
    wanted = shifted.wanted[:, shifted.counted]
    every = shifted.draws.symbols.flatten(1, 2)  # [batch, symbol, dim]
    nearest = (answers[..., None, :] - every[:, None, None]).square().sum(dim=-1).argmin(dim=-1)
    chosen = every[torch.arange(len(every))[:, None, None], nearest]
    return (answers - wanted).square().mean(dim=-1), (chosen == wanted).all(dim=-1).float()


def _plain(scores: Mapping[str, SymbolScores]) -> dict[str, Any]:
    """Return the totals as plain numbers; the slots stand in the table."""
    totals = {symbol: own.total for symbol, own in scores.items()}
    return {
        symbol: {"loss": own.loss.to_json(), "accuracy": own.accuracy.to_json(), "outcome": own.outcome}
        for symbol, own in totals.items()
    }
