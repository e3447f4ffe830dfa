"""One example, step by step: where the heads of a circuit look while the model solves it, and what can then be read.

What can be read is the logit lens: the model's own read-out of the residual stream after a layer (nostalgebraist 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from circuits.ablation import each_loss
from circuits.averages import Averages
from circuits.averages import averages as averages_of
from circuits.circuit import Circuit, Head
from circuits.entrance import entrance
from circuits.errors import whole
from circuits.figures.diagram import colour
from circuits.figures.page import Shown, render_page
from circuits.given import examples_of, read_positions, stream_seed
from circuits.mechanisms.mechanism import Idle
from circuits.model.layers import layers
from circuits.model.transformer import Transformer, run
from circuits.report.looks import ANOTHER_WAY, KINDS, Arrow, Looks, looked, written_by
from circuits.results import Result
from circuits.task import Answer, Examples, Task, Told, WithInstances
from circuits.utils.tokens import visible

Said = list[list[list[Answer]]]  # by example and instance
SEARCHED, SHOWN = 64, 4  # examples among which those that go another way are found, and those that are told
SPACE = " ·"  # a space, and how a token shows it
SAID = {
    "path": "",
    "weak": ", less than half",
    "fixed": " (by a fixed pattern)",
    "seen": " (the circuit leaves this head as it is)",
    "row": " (no path, but a fixed row of the circuit)",
    "other": ". The circuit says otherwise",
}


class Step(Result):
    """A sentence, the arrows of a layer, and what can be read at the answer after it."""

    layer: int | None
    said: str
    arrows: tuple[Arrow, ...]
    reads: tuple[Answer, ...]


class Story(Result):
    """One example: its words; for every instance the roles of positions, the steps, and answers without each head.

    ``ways`` says of every instance whether the answer's position looks where no path leads: ``row``, ``other`` or "".
    """

    words: tuple[str, ...]
    ways: tuple[str, ...]
    roles: tuple[dict[int, str], ...]
    steps: tuple[tuple[Step, ...], ...]
    without: dict[str, tuple[tuple[Answer, ...], ...]]


class Stories(Result, Shown):
    """Some examples; those on which the model goes another way come first.

    ``unit`` is what the number of an answer is; ``names`` are those of the answers, if an instance has several.
    ``counted`` says how many instances were asked, and how many of them go each of the other ways.
    """

    title: str
    unit: str
    names: tuple[str, ...]
    counted: dict[str, int]
    colours: dict[str, str]
    stories: tuple[Story, ...]

    def page(self) -> str:
        """Return a self-contained page."""
        return render_page("steps.html.jinja", stories=self)

    def __repr__(self) -> str:
        return f"{self.title}: {len(self.stories)} examples, step by step"


@entrance
def step_by_step(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    n_stories: int = SHOWN,
    seed: int = 0,
    averages: Averages | None = None,
) -> Stories:
    """Tell how a model solves some examples, along a circuit.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: its task; one that is ``Told`` says its symbols and answers in words.
        circuit: the circuit.
        n_stories: the number of examples; on half of them the model goes another way, if there are as many.
        seed: their seed.
        averages: the averages of the model's heads; by default those of this seed.

    Raises:
        BadInput: the circuit does not fit the model or the task.
    """
    n_stories = whole("the number of stories", n_stories, 1)
    device = next(model.parameters()).device
    examples = examples_of(task, max(n_stories, SEARCHED), stream_seed(seed, "step by step"), device)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)
    looks = looked(model, circuit, examples)
    with torch.no_grad():
        outputs = run(model, examples)
    asked, answers = asked_in(task, outputs, examples), said(task, outputs, examples)
    right = torch.tensor([all(one[0][2] for one in each if one) for each in answers])
    kinds = [kind for (_, role), (*_, kind) in looks.items() if role in task.output_roles]
    ways = torch.stack([asked.int(), *kinds]).amax(dim=0) * asked
    ways[ways < ANOTHER_WAY] = 0
    order = (2 * ways.amax(dim=1) - right.int()).argsort(descending=True, stable=True)
    half = -(-n_stories // 2)
    some = torch.cat([order[:half], order.flip(0)[: n_stories - half]])
    chosen = {where: (at[some], share[some], kind[some]) for where, (at, share, kind) in looks.items()}
    telling = Telling(model, task, circuit, examples.take(some.to(device)), chosen, asked[some], ways[some])
    told = (*telling.stories(averages_of(model, task, seed) if averages is None else averages),)
    steps = [one for story in told for steps in story.steps for one in steps]
    heads, n_answers = {arrow.head for one in steps for arrow in one.arrows}, {len(one.reads) for one in steps}
    return Stories(
        title=circuit.name or "a circuit",
        unit=task.unit if isinstance(task, Told) else "",
        names=task.loss_components if n_answers == {len(task.loss_components)} else (),
        counted={
            "asked": int(asked.sum()),
            **{way: int((ways == KINDS.index(way)).sum()) for way in KINDS[ANOTHER_WAY:]},
        },
        colours={str(head): colour(head) for head in sorted(heads)},
        stories=told,
    )


def asked_in(task: Task, outputs: Tensor, examples: Examples) -> Bool[Tensor, "example instance"]:
    """Return which instances are asked for an answer; where none is, all."""
    if not isinstance(task, WithInstances):
        return torch.ones(examples.roles.positions.shape[::2], dtype=torch.bool)
    asked = ~task.instance_losses(outputs, examples).isnan().all(dim=2).cpu()
    return asked | ~asked.any(dim=1, keepdim=True)


def words(model: Transformer, task: Task, examples: Examples) -> list[list[str]]:
    """Return the text of every position, or its number if neither task nor model has texts; none at padding."""
    texts = [[*map(str, range(len(row)))] for row in examples.inputs]
    if isinstance(task, Told):
        texts = task.texts(examples)
    elif model.tokenizer is not None:
        texts = [[visible(model.tokenizer, token) for token in row] for row in examples.inputs.tolist()]
    both = zip(texts, examples.roles.tokens(examples.inputs.shape[1]), strict=True)
    return [[text if there else "" for text, there in zip(*one, strict=True)] for one in both]


@torch.no_grad()
def answers(model: Transformer, task: Task, examples: Examples) -> list[list[tuple[str, list[Answer]]]]:
    """Return what the model says in every instance that is asked, after the text of the position where it says so."""
    outputs, texts, at = run(model, examples), words(model, task, examples), examples.roles[task.output_roles[-1]]
    each = zip(texts, at.tolist(), asked_in(task, outputs, examples), said(task, outputs, examples), strict=True)
    return [[(row[end], one) for end, there, one in zip(*own, strict=True) if there] for row, *own in each]


def said(task: Task, outputs: Tensor, examples: Examples) -> Said:
    """Return what outputs say, for every example and instance; nothing if the task is not ``Told``."""
    if not isinstance(task, Told):
        return [[[] for _ in range(examples.roles.positions.shape[2])] for _ in outputs]
    return rounded(task.said(outputs, examples))


def _top(answers: Sequence[Answer]) -> tuple[str | bool, ...]:
    return (answers[0][0], *(hit for *_, hit in answers)) if answers else ()


def rounded(told: Said) -> Said:
    """Return answers with two digits."""
    return [[[(text, float(f"{number:.2g}"), hit) for text, number, hit in one] for one in each] for each in told]


class Heard:
    """A task that keeps what the last outputs said."""

    def __init__(self, task: Any) -> None:
        self.task, self.said = task, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def losses(self, outputs: Tensor, examples: Examples) -> Tensor:
        """Return the task's losses."""
        self.said = self.task.said(outputs, examples)
        return self.task.losses(outputs, examples)


@dataclass
class Telling:
    """Examples that are told, and where the heads look on them."""

    model: Transformer
    task: Task
    circuit: Circuit
    examples: Examples
    looks: Looks
    asked: Bool[Tensor, "example instance"]
    ways: Int[Tensor, "example instance"]

    def stories(self, means: Averages) -> Iterator[Story]:
        """Yield the story of every example."""
        roles, without = self.examples.roles, self.without(means) if isinstance(self.task, Told) else {}
        for n, texts in enumerate(words(self.model, self.task, self.examples)):
            at = roles.positions[n].T.tolist()
            places = [dict(zip(reversed(one), reversed(roles.names), strict=True)) for one in at]
            some = self.asked[n].nonzero()[:, 0].tolist()
            yield Story(
                words=tuple(texts),
                ways=tuple(KINDS[self.ways[n, i]] for i in some),
                roles=tuple(places[i] for i in some),
                steps=tuple(tuple(self.steps(n, i, texts, places)) for i in some),
                without={head: tuple(tuple(all_of[n][i]) for i in some) for head, all_of in without.items()},
            )

    def without(self, means: Averages) -> dict[str, Said]:
        """Return the circuit's answers, and those without each of its heads that look or are drawn."""
        drawn = {head for (head, _), (*_, kind) in self.looks.items() if kind.any()}
        heads = sorted({*drawn, *self.circuit.looking})
        circuits = {"": self.circuit} | {str(head): self.circuit.with_head(head, Idle()) for head in heads}
        answers, heard = [Said() for _ in circuits], Heard(self.task)
        for n, _, _ in each_loss(self.model, heard, self.examples, [*circuits.values()], means):
            answers[n] += rounded(heard.said)
        return dict(zip(circuits, answers, strict=True))

    @cached_property
    def writers(self) -> dict[tuple[Head, str, int, int], Arrow]:
        """Who had written what is fetched where no path leads."""
        return written_by(self.model, self.task, self.examples, self.looks)

    @cached_property
    def right(self) -> list[list[str]]:
        """The right answer of every instance; empty if the task is not ``Told``."""
        return self.task.right(self.examples) if isinstance(self.task, Told) else []

    @cached_property
    @torch.no_grad()
    def lens(self) -> list[Said]:
        """What the residual stream says that enters layer 0, and that after every layer."""
        opened, read = layers(self.model, self.examples), read_positions(self.task, self.examples)
        residual, answers = opened.embed(), []
        for layer in range(self.model.cfg.n_layers + 1):
            rows = opened.read(residual[read])
            outputs = rows.new_zeros(*residual.shape[:2], rows.shape[-1])
            outputs[read] = rows
            answers.append(said(self.task, outputs, self.examples))
            residual = opened.block(layer, residual) if layer < self.model.cfg.n_layers else residual
        return answers

    def steps(self, n: int, i: int, texts: Sequence[str], places: Sequence[dict[int, str]]) -> Iterator[Step]:
        """Yield the steps of one instance."""
        ends = self.examples.roles[self.task.output_roles[-1]][n].tolist()

        def place(at: int) -> str:
            others = (f"{one[at]} of {texts[end]}" for one, end in zip(places, ends, strict=True) if at in one)
            return f"\u201c{texts[at].strip(SPACE)}\u201d ({places[i].get(at) or next(others, f'position {at}')})"

        right = f" The right answer is {self.right[n][i].strip(SPACE)}." if self.right else ""
        first, last = f"The answer is read at {place(ends[i])}.{right}", "This is the model's answer."
        told: dict[int, list[tuple[str, Arrow]]] = {}
        for (head, role), (to, share, kind) in self.looks.items():
            if how := KINDS[int(kind[n, i])]:
                at = {"source": int(self.examples.roles[role][n, i]), "target": int(to[n, i])}
                look = Arrow(head=head, **at, attention=round(share[n, i].item(), 2), kind=how)
                line = f"{head} at {place(look.source)} looks at {place(look.target)}: {look.attention:.2f}{SAID[how]}."
                told.setdefault(head.layer, []).append((line, look))
                if writer := self.writers.get((head, role, n, i)):
                    seen = f"{writer.head}, which looks from there at {place(writer.target)}: {writer.attention:.2f}"
                    told[head.layer].append((f"What it fetches there was written by {seen}.", writer))
        yield Step(layer=None, said=first, arrows=(), reads=(*self.lens[0][n][i],))
        for layer in range(self.model.cfg.n_layers):  # those with arrows, and those after which another answer is read
            looks, reads, before = told.get(layer, []), self.lens[layer + 1][n][i], self.lens[layer][n][i]
            if looks or _top(reads) != _top(before):
                line = (
                    " ".join(line for line, _ in looks) or "no head looks mostly at one role; another answer is read."
                )
                arrows = tuple(look for _, look in looks)
                yield Step(layer=layer, said=f"Layer {layer}: {line}", arrows=arrows, reads=(*reads,))
        yield Step(layer=None, said=last, arrows=(), reads=(*self.lens[-1][n][i],))
