"""A search for a circuit, where what attention shows is not enough (paper, Appendix E, steps 1 to 4, and 6 as a loop).

Two orders are searched. From below, the heads above left free: that finds the paths which only tell those heads where
to attend, as far up as the free heads still manage. From above for what is left over, and once for all heads. Every
finished circuit is shrunk until no path can go, the best is improved while its loss falls, and all are judged as
wholes: how much they explain, then their size, then their loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transformer_lens import HookedTransformer

from circuits.attention import role_attention
from circuits.circuit import Circuit, Head
from circuits.errors import Unsolved
from circuits.fixing import from_above, from_below
from circuits.judge import ENOUGH, Judge, Judgement
from circuits.mechanisms import Mechanism
from circuits.problem import Problem
from circuits.refining import improve, repair, shrink, smallest
from circuits.sample import check_number, stream_seed
from circuits.search import Search, State, Step, Trial

STREAM = "search"  # of examples


@dataclass(frozen=True)
class Searched:
    """A circuit and how the search found it.

    Attributes:
        circuit: a mechanism for every head of the model.
        judgement: its loss on the examples that it was selected on; ``validate`` gives the loss on fresh ones.
        unablated: the model's own loss on the same examples.
        explained: the layers up to which it does with the heads above left free; the last one is the whole circuit.
        history: the steps in which heads were fixed or changed, with the loss after each.
        alternatives: other circuits with as many paths that are below the threshold, best first.
        smallest: with fewer paths, and below the threshold as long as every head's attention is prescribed: without
            those that only tell heads above where to attend. None if no path does no more than that.
        trials: everything that was tried.
        threshold: a loss below it counts as low.
        seed: of the examples.
        n_evaluations: sequences that were run.
    """

    circuit: Circuit
    judgement: Judgement
    unablated: Judgement
    explained: tuple[int, ...]
    history: tuple[Step, ...]
    alternatives: tuple[tuple[Circuit, Judgement], ...]
    smallest: tuple[Circuit, Judgement] | None
    trials: tuple[Trial, ...]
    threshold: float
    seed: int
    n_evaluations: int

    @property
    def found(self) -> bool:
        """Whether the whole circuit stays below the threshold."""
        return self.judgement.side == "below"

    def steps(self) -> tuple[str, ...]:
        """How the circuit was found, one sentence for every step."""
        said = []
        for step in self.history:
            change = "; ".join(f"{head}: {mechanism}" for head, mechanism in step.change.items())
            said.append(f"{change} ({step.reason}). Loss {step.judgement}.")
        return tuple(said)

    def others(self) -> tuple[str, ...]:
        """Other circuits below the threshold, by what they have instead: as many paths, or fewer."""
        said = [f"As many paths: {self._instead(*other)}" for other in self.alternatives]
        if self.smallest:
            said.append(f"Fewer paths, if heads above need not find their way: {self._instead(*self.smallest)}")
        return tuple(said)

    def _instead(self, other: Circuit, judgement: Judgement) -> str:
        changes = other.difference(self.circuit).items()
        return "; ".join(f"{head} {there} instead of {here}" for head, (there, here) in changes) + f": {judgement}"

    def to_json(self) -> dict[str, Any]:
        """The search as plain numbers and texts; docs/report.md says what each key holds."""
        return {
            "found": self.found,
            "circuit": _mechanisms(self.circuit.heads),
            "loss": _numbers(self.judgement),
            "unablated": _numbers(self.unablated),
            "explained_layers": list(self.explained),
            "threshold": self.threshold,
            "seed": self.seed,
            "evaluations": self.n_evaluations,
            "alternatives": [_circuit(c, j) for c, j in self.alternatives],
            "smallest": None if self.smallest is None else _circuit(*self.smallest),
            "history": [
                {"change": _mechanisms(step.change), "loss": _numbers(step.judgement), "reason": step.reason}
                for step in self.history
            ],
            "log": [
                {
                    "order": t.order,
                    "change": _mechanisms(t.change),
                    "paths_before": t.given,
                    "loss": _numbers(t.judgement),
                    "taken": t.taken,
                    "reason": t.reason,
                }
                for t in self.trials
            ],
        }


def _numbers(judgement: Judgement) -> dict[str, Any]:
    return {**judgement.loss.to_json(), "side": judgement.side}


def _mechanisms(heads: Mapping[Head, Mechanism]) -> dict[str, str]:
    return {str(head): str(mechanism) for head, mechanism in heads.items()}


def _circuit(circuit: Circuit, judgement: Judgement) -> dict[str, Any]:
    return {"circuit": _mechanisms(circuit.heads), "loss": _numbers(judgement)}


def search_circuit(
    model: HookedTransformer,
    problem: Problem,
    *,
    n_examples: int = 16384,
    threshold: float = 0.05,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Searched:
    """Search for the circuit of a model.

    Args:
        model: any HookedTransformer without padding.
        problem: its task: examples with roles, and a loss.
        n_examples: to select on, at most; nearly all candidates are decided on 32 or 128 of them, and one whose loss
            chance could still put on either side of the threshold after the last is undecided.
        threshold: a loss below it counts as low; the paper takes 0.05.
        seed: of the examples; the same seed gives the same result.
        progress: is told the finished share, 0 to 1.

    Raises:
        Unsolved: the model does not solve the task.
        BadInput: the threshold is no number above 0, or there are too few examples, or too many.
    """
    check_number(n_examples)
    device = next(model.parameters()).device
    judge = Judge(model, problem, problem.examples(n_examples, stream_seed(seed, STREAM)).to(device), threshold)
    (unablated,) = judge([Circuit()])
    if unablated.side != "below":
        raise Unsolved(f"the model's own loss is {unablated.loss}, not surely below the threshold {threshold:g}")
    attention = role_attention(model, judge.examples.take(slice(0, ENOUGH))).cpu()
    search = Search(judge, attention)
    done, steps = 0, 2 * len(search.heads)

    def fixed() -> None:
        nonlocal done
        done += 1
        progress(0.8 * done / steps)

    below, left = from_below(search, fixed)
    finished = from_above(search, below, left, fixed)
    if left != search.heads:
        finished += from_above(search, [State(Circuit())], search.heads, fixed)
    finished = search.settled(finished)
    progress(0.8)
    wholes = sorted({s.circuit: s for s in finished}.values(), key=lambda state: _standing(search, state))
    # Both ends: the best as it stands, and the one that has the most room to lose paths.
    ends = {s.circuit: s for s in (wholes[0], min(wholes, key=lambda s: s.judgement.loss.mean))}
    shrunk = []
    for state in ends.values():
        state = repair(search, state)
        shrunk.append(shrink(search, state) if state.judgement.side == "below" else state)
        progress(0.8 + 0.1 * len(shrunk) / len(ends))
    wholes = sorted([*shrunk, *wholes], key=lambda state: _standing(search, state))
    best, others = improve(search, wholes[0]) if wholes[0].judgement.side == "below" else (wholes[0], [])
    (best,) = search.settled([best])
    fewest = smallest(search, best) if best.judgement.side == "below" else best
    progress(1.0)
    same_size = [state for state in wholes[1:] if state.judgement.side == "below" and state.size == best.size]
    worst_first = sorted([*others, *same_size], key=lambda s: s.key, reverse=True)
    alternatives = {s.circuit.paths: (s.circuit, s.judgement) for s in worst_first}  # the best of the same paths stays
    alternatives.pop(best.circuit.paths, None)
    return Searched(
        circuit=best.circuit,
        judgement=best.judgement,
        unablated=unablated,
        explained=tuple(sorted(search.explained(best.circuit))),
        history=best.history,
        alternatives=tuple(sorted(alternatives.values(), key=lambda other: other[1].loss.mean)),
        smallest=(fewest.circuit, fewest.judgement) if fewest.size < best.size else None,
        trials=tuple(search.trials),
        threshold=threshold,
        seed=seed,
        n_evaluations=judge.n_evaluations,
    )


def _standing(search: Search, state: State) -> tuple[bool, int, int, float]:
    """Smaller is better: below the threshold, explaining the most layers, then size, then loss."""
    return (state.judgement.side != "below", -len(search.explained(state.circuit)), *state.key)
