"""The state of the explorer, without widgets: a draft, its history, and its losses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from circuits.attention import role_attention
from circuits.checks.removals import PathResult
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.circuit_file import save_circuit
from circuits.composition.edges import Composition
from circuits.composition.path_patching import path_patching
from circuits.explorer.draft import Draft
from circuits.given import examples_of
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.model.transformer import Transformer
from circuits.null_models.chance import against_chance
from circuits.task import Task
from circuits.utils.progress import part_of
from circuits.validation.validation import validate

AT_ONCE, EXACTLY = 32, 1024  # examples for losses while exploring, and for exact losses
IN_PASSING = 64  # examples for the test whether paths are needed, and for the edges of a head
THRESHOLD = 0.05


class Exploration:
    """A model, a circuit that is edited, and the history of its changes.

    Attributes:
        few: the examples for losses while exploring.
        attention: the average attention from role to role in the unablated model, on these examples.
    """

    def __init__(
        self,
        model: Transformer,
        task: Task,
        circuit: Circuit,
        seed: int = 0,
        threshold: float = THRESHOLD,
    ) -> None:
        """Start an exploration.

        Args:
            model: any HookedTransformer or TransformerBridge without hooks of its own.
            task: the model's task: examples with roles, and a loss.
            circuit: the first circuit; ``Circuit()`` for none.
            seed: the seed of the examples.
            threshold: a loss below it counts as low.

        Raises:
            BadInput: the circuit does not fit the model or the task.
        """
        examples = examples_of(task, EXACTLY, seed, next(model.parameters()).device)
        self.model, self.task, self.seed = model, task, seed
        self.threshold = threshold
        self._test = SequentialTest(model, task, examples, threshold)
        self._past, self._place = [Draft(self._fitting(circuit))], 0
        self.few = examples.take(slice(0, AT_ONCE))
        self._at_once = SequentialTest(model, task, self.few, threshold)
        self._edges: dict[str, Composition] = {}  # by the circuit of one head
        self.attention: Float[Tensor, "layer head query_role key_role"] = role_attention(model, self.few).cpu()

    @property
    def draft(self) -> Draft:
        """The current draft."""
        return self._past[self._place]

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads of the model."""
        cfg = self.model.cfg
        return tuple(Head(layer, index) for layer in range(cfg.n_layers) for index in range(cfg.n_heads))

    def loss(self, exactly: bool = False) -> Loss:
        """Return the loss under the circuit's ablation, on few examples or (``exactly``) on all."""
        return self._loss(self.draft.circuit, exactly)

    def unablated(self, exactly: bool = False) -> Loss:
        """Return the loss of the unablated model, on few examples or (``exactly``) on all."""
        return self._loss(Circuit(), exactly)

    def exactly(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Measure the losses of the circuit and of the unablated model on all examples."""
        self._test.measure([self.draft.circuit, Circuit()], progress=progress)

    def minimal(self, progress: Callable[[float], None] = lambda share: None) -> dict[AttentionPath, PathResult]:
        """Test for every path of the circuit whether it is needed (Appendix E, step 6), on few examples.

        Raises:
            BadInput: the circuit names no head.
        """
        asked: dict[str, Any] = {"n_examples": IN_PASSING, "seed": self.seed, "threshold": self.threshold}
        report = validate(self.model, self.task, self.draft.circuit, **asked, progress=progress)
        return {result.path: result for result in report.paths}

    def has_edges(self, head: Head) -> bool:
        """Whether the edges of a head can be shown at once: they were measured, or it has no path between roles."""
        alone = self._alone(head)
        return not any(path.joins_roles for path in alone.paths) or alone.digest in self._edges

    def edges(self, head: Head, progress: Callable[[float], None] = lambda share: None) -> Composition | None:
        """Find by which senders a head finds its place, on few examples; None if it has no path between roles.

        Raises:
            BadInput: what heads and MLPs write does not add up to the residual stream, or the examples have padding.
        """
        alone = self._alone(head)
        if not any(path.joins_roles for path in alone.paths):
            return None
        if alone.digest not in self._edges:
            asked: dict[str, Any] = {"n_examples": IN_PASSING, "seed": self.seed}
            self._edges[alone.digest] = path_patching(self.model, self.task, alone, **asked, progress=progress)
        return self._edges[alone.digest]

    def strength(self, path: AttentionPath) -> float:
        """Return the attention along a path in the unablated model, from 0 to 1."""
        roles = self.few.roles.names
        return float(
            self.attention[path.head.layer, path.head.index, roles.index(path.source), roles.index(path.target)]
        )

    def toggle(self, path: AttentionPath) -> None:
        """Remove a path, or put it back.

        Raises:
            BadInput: there is no such path.
        """
        self._go(self.draft.toggled(path))

    def cycle(self, head: Head) -> None:
        """Put a head into its next state: uniform, identity, previous, its paths, intact, and uniform again."""
        self._go(self.draft.next(head))

    def draw(self, head: Head, source: str, target: str) -> tuple[tuple[AttentionPath, ...], tuple[AttentionPath, ...]]:
        """Add a path; return the paths of its head that it replaced, and the paths that were put back with it.

        Raises:
            BadInput: the path does not fit the model or its roles.
        """
        draft = self.draft.drawn(AttentionPath(head, source, target))
        self._fitting(draft.hypothesis)
        before, after = (
            {path for path in one.circuit.paths if path.head == head} - {AttentionPath(head, source, target)}
            for one in (self.draft, draft)
        )
        self._go(draft)
        return tuple(sorted(before - after, key=str)), tuple(sorted(after - before, key=str))

    def undo(self) -> None:
        """Undo one change, if there is one."""
        self._place = max(0, self._place - 1)

    def redo(self) -> None:
        """Redo one change, if there is one."""
        self._place = min(len(self._past) - 1, self._place + 1)

    def reset(self) -> None:
        """Go back to the first circuit; this can be undone."""
        self._go(self._past[0])

    def save(self, path: Path) -> None:
        """Write the circuit as YAML.

        Raises:
            BadInput: the file cannot be written.
        """
        save_circuit(self._named(), path)

    def report(self, folder: Path, progress: Callable[[float], None] = lambda share: None) -> Path:
        """Validate the circuit on fresh examples, write the report, and return the path of its page.

        Raises:
            BadInput: the circuit names no head, or the report cannot be written.
        """
        circuit = self._named()
        asked: dict[str, Any] = {"n_examples": EXACTLY, "seed": self.seed + 1, "threshold": self.threshold}
        report = validate(self.model, self.task, circuit, **asked, progress=part_of(progress, 0.0, 0.5))
        chance = against_chance(self.model, self.task, circuit, **asked, progress=part_of(progress, 0.5, 1.0))
        return report.save(folder, chance)

    def _loss(self, circuit: Circuit, exactly: bool) -> Loss:
        (loss,) = (self._test if exactly else self._at_once).measure([circuit])
        return loss

    def _alone(self, head: Head) -> Circuit:
        """Return the circuit with this head only."""
        return Circuit({own: mechanism for own, mechanism in self.draft.hypothesis.heads.items() if own == head})

    def _named(self) -> Circuit:
        """Return the circuit; a changed circuit does not keep the description of the first one."""
        circuit, began = self.draft.circuit, self._past[0].circuit
        if circuit == began:
            return circuit
        description = f"Changed by hand in the explorer; the first circuit was {began.name or 'another one'}."
        return replace(circuit, description=description)

    def _go(self, draft: Draft) -> None:
        if draft != self.draft:
            self._past[self._place + 1 :] = [draft]
            self._place += 1

    def _fitting(self, circuit: Circuit) -> Circuit:
        circuit.check(self._test.roles, self.model.cfg.n_layers, self.model.cfg.n_heads)
        return circuit
