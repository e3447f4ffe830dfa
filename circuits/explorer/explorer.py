"""The explorer: a circuit as an editable diagram in a notebook, with its losses and the attention of a head."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from circuits.attention import role_attention
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import minimality
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.circuit_file import load_circuit, save_circuit
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.explorer.draft import Draft
from circuits.figures.diagram import SMALLEST, drawing, full_width, state_of
from circuits.figures.page import render, viewer_code
from circuits.given import examples_of
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Idle, Intact, Resample, head_pattern
from circuits.model.transformer import Transformer
from circuits.report.step_by_step import answers, words
from circuits.settings import has_many_heads
from circuits.task import Task
from circuits.utils.files import to_path
from circuits.viewer import attention_viewer, warn_if_large

HERE = Path(__file__).parent
MANY = 48  # of more heads, not all are drawn
AT_ONCE, EXACTLY, OF_MANY = 32, 1024, 128  # examples for losses while exploring, for exact ones, and with many heads
IN_PASSING = 64  # examples for the test whether paths are needed
NEEDED = {"directly": "needed", "indirectly": "needed indirectly", "as a backup": "a backup", "no": "not needed"}


@entrance
def explore(
    model: Transformer, task: Task, circuit: Circuit | None = None, seed: int = 0, threshold: float = 0.05
) -> "Explorer":
    """Explore a circuit in a notebook: remove paths, add paths, and see the loss at once.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, and a loss.
        circuit: the first circuit; by default all heads are intact.
        seed: the seed of the examples.
        threshold: an excess loss below this share of the range counts as low, for ``minimal?``.

    Raises:
        BadInput: the circuit does not fit the model, or an argument has the wrong type.
    """
    return Explorer(model, task, circuit or Circuit(), seed, threshold)


class Diagram(anywidget.AnyWidget):
    """A drawing that reports clicks."""

    _esm = HERE / "diagram.js"
    svg = traitlets.Unicode().tag(sync=True)


class AttentionHeads(anywidget.AnyWidget):
    """The attention viewer as a widget whose example can change."""

    _esm = viewer_code() + (HERE / "viewer.js").read_text(encoding="utf-8")
    panels: traitlets.List = traitlets.List().tag(sync=True)
    head = traitlets.Int().tag(sync=True)


class Explorer(ipywidgets.VBox):
    """The drawing, the losses, and the chosen head, side by side.

    Attributes:
        draft: the circuit as it is now, and what is drawn.
        said: the last message, as a line of text.
    """

    def __init__(self, model: Transformer, task: Task, circuit: Circuit, seed: int, threshold: float) -> None:
        """Start with a circuit; the arguments are those of ``explore``."""
        self._all = OF_MANY if has_many_heads(model.cfg) else EXACTLY
        examples = examples_of(task, self._all, seed, next(model.parameters()).device)
        self.model, self.task, self.seed, self.threshold = model, task, seed, threshold
        self._test = SequentialTest(model, task, examples, threshold)
        self._check(circuit)
        self._past, self._n, self.said = [Draft(circuit, circuit)], AT_ONCE, ""
        self._labels: dict[AttentionPath, str] = {}
        self._few = examples.take(slice(0, AT_ONCE))
        self._attention: Float[Tensor, "layer head query_role key_role"] = role_attention(model, self._few).cpu()
        roles, cfg = self._few.roles.in_order, model.cfg
        self._heads = [Head(layer, index) for layer in range(cfg.n_layers) for index in range(cfg.n_heads)]
        shown = str((circuit.heads_with_paths or self._heads)[-1])
        self.head = ipywidgets.Dropdown(options=[*map(str, self._heads)], value=shown, description="head")
        self.example = ipywidgets.IntSlider(0, 0, AT_ONCE - 1, description="example")
        self._words, self._answers = words(model, task, self._few), answers(model, task, self._few)
        self.source = ipywidgets.Dropdown(options=roles, value=roles[-1], description="at")
        self.target = ipywidgets.Dropdown(options=roles, description="looks at")
        self.file = ipywidgets.Text("circuit.yaml", description="as")
        basis = f"1 1 {SMALLEST * full_width(roles):g}px"  # in a narrow notebook, a row for itself
        self.diagram = Diagram(layout={"flex": basis, "min_width": "0", "overflow": "auto"})
        self.viewer = AttentionHeads()
        self.losses, self.attention = ipywidgets.HTML(), ipywidgets.HTML()
        self.line, self.sequence = ipywidgets.HTML(), ipywidgets.HTML()
        self.bar = ipywidgets.FloatProgress(min=0.0, max=1.0, layout={"visibility": "hidden"})
        self.buttons = {
            "undo": self._button("undo", "Undo one change", self._undo),
            "reset": self._button("reset", "Go back to the first circuit", lambda: self._change(self._past[0])),
            "exact": self._button(f"on {self._all:,} examples", "Measure the losses on all examples", self._exact),
            "minimal?": self._button("minimal?", "Test on few examples whether every path is needed", self._minimal),
            "draw": self._button("draw", "Add a path to the chosen head, or retarget one", self._draw),
            "save": self._button("save", "Write the circuit as YAML", self._save),
        }
        self.diagram.on_msg(lambda _, message, __: self._clicked(message))
        self.head.observe(lambda _: self._show_head(), "value")
        self.example.observe(lambda _: self._show_example(), "value")
        row = partial(ipywidgets.HBox, layout={"flex_flow": "row wrap"})
        *edit, draw, save = self.buttons.values()
        figures = ipywidgets.VBox([self.losses, self.head, self.attention], layout={"flex": "1 1 360px"})
        change, example = [self.source, self.target, draw, self.file, save], [self.example, self.sequence, self.viewer]
        super().__init__([row(edit), row(change), self.line, self.bar, row([self.diagram, figures]), *example])
        self._show()
        self._show_head()
        self._show_example()

    @property
    def draft(self) -> Draft:
        """The circuit as it is now, and what is drawn."""
        return self._past[-1]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Add a picture and a line of text to the widget, for readers who do not run the notebook."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        picture = self.diagram.svg.replace('style="', 'style="background: #fff; color: #000; ', 1)
        return {**bundle, "image/svg+xml": picture, "text/plain": self.said}

    def _button(self, name: str, tooltip: str, action: Callable[[], str | None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=name, tooltip=tooltip, layout={"width": "auto"})
        button.on_click(lambda _: self._do(action))
        return button

    def _do(self, action: Callable[[], str | None]) -> None:
        """Run an action and show its result; after an error, show it and the circuit as it was."""
        past, self._n = [*self._past], AT_ONCE
        try:
            message = action()
            self._show(message)
        except Exception as error:  # a notebook does not show the exceptions of a click
            self._past = past
            self._show_drawing()
            self._say(str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}", wrong=True)
        finally:
            self.bar.layout.visibility = "hidden"

    def _clicked(self, act: str) -> None:
        what, _, which = act.partition(" ")
        self.head.value = which.split(" ")[0]
        if what == "head":
            self._do(lambda: self._change(self.draft.cycled(Head.of(which))))
        else:
            self._do(lambda: self._change(self.draft.toggled(AttentionPath.parse(which))))

    def _change(self, draft: Draft) -> None:
        if draft != self.draft:
            self._past, self._labels = [*self._past, draft], {}

    def _undo(self) -> None:
        self._past, self._labels = self._past[:-1] or self._past, {}

    def _exact(self) -> None:
        self._n = self._all

    def _minimal(self) -> str:
        """Test for every path of the circuit whether it is needed (Appendix E, step 6)."""
        asked: dict[str, Any] = {"n_examples": IN_PASSING, "seed": self.seed, "threshold": self.threshold}
        experiment = Experiment(self.model, self.task, self.draft.circuit, **asked)
        experiment.test.searching = True  # with a stated error so few examples never show that nothing is lost
        parts = minimality(experiment)
        self._labels = {one.path: NEEDED.get(one.needed, one.needed) for one in parts if one.path is not None}
        said = "; ".join(f"{one}: {NEEDED.get(one.needed, one.needed)}" for one in parts) or "the circuit has no path"
        hint = " (all are, if the circuit's loss is not low)" if "undecided" in self._labels.values() else ""
        return f"On {IN_PASSING} examples, at the threshold {self.threshold:g}: {said}{hint}."

    def _draw(self) -> None:
        path = AttentionPath(Head.of(self.head.value), self.source.value, self.target.value)
        draft = self.draft.with_path(path)
        self._check(draft.drawn)
        self._change(draft)

    def _check(self, circuit: Circuit) -> None:
        circuit.check(self._test.roles, self.model.cfg.n_layers, self.model.cfg.n_heads)

    def _save(self) -> str:
        """Write the circuit; a changed circuit does not keep the description of the first one. BadInput if the text is
        not the name of a file in a folder that exists, or the file is no circuit, which must not be lost.
        """
        name, circuit, first = self.file.value.strip(), self.draft.circuit, self._past[0].circuit
        if Path(name).name in ("", "..") or "\0" in name or not (file := to_path(name)).parent.is_dir():
            expected = "expected a name such as circuit.yaml, in a folder that exists"
            raise BadInput(f"{name!r} is not the name of a file; {expected}")
        if file.exists():
            try:
                load_circuit(file)
            except BadInput as error:
                raise BadInput(f"{file} exists and is not a circuit; expected another name") from error
        if circuit != first:
            description = f"Changed by hand in the explorer; the first circuit was {first.name or 'another one'}."
            circuit = replace(circuit, description=description)
        save_circuit(circuit, file)
        return f"The circuit is saved in {file}."

    def _progress(self, share: float) -> None:
        self.bar.layout.visibility, self.bar.value = "visible" if share < 1 else "hidden", share

    def _say(self, text: str, wrong: bool = False) -> None:
        self.said = text
        mark = "<b>Not done.</b> " if wrong else ""
        self.line.value = f'<div role="status" aria-live="polite">{mark}{escape(text)}</div>'

    def _show(self, message: str | None = None) -> None:
        """Show the circuit as it is now, its losses, and a message; the drawing is sent first."""
        self._show_drawing()
        loss, unablated = self._test.measure([self.draft.circuit, Circuit()], self._n, self._progress)
        own, now = ({"mean": one.mean, **one.components} for one in (unablated, loss))
        rows, scale = [(name, own[name], now[name]) for name in own], self._test.scale
        limit, top = scale.own.mean + self.threshold * scale.width, max(*own.values(), *now.values(), 1e-9)
        lines: dict[str, Any] = {"limit": limit, "idle": scale.none.mean, "top": max(top, 1.2 * limit)}
        self.losses.value = render("losses.html.jinja", rows=rows, n=f"{self._n:,}", **lines)
        losses = f"The circuit's loss is {loss}, the unablated loss {unablated}, on {self._n:,} examples."
        self._say(f"{message} {losses}" if message else losses)

    def _show_drawing(self) -> None:
        """Draw all heads of the model; of many, those with paths or intact, and the chosen one."""
        chosen, drawn = Head.of(self.head.value), self.draft.drawn
        some = self._heads if len(self._heads) <= MANY else {chosen, *drawn.looking, *self.draft.circuit.looking}
        rows = {head: state_of(self.draft.circuit.heads.get(head)) for head in some}
        arrows, roles = self.draft.arrows(self._labels), self._few.roles
        self.diagram.svg = drawing(rows, arrows, roles, self._attention, chosen=chosen, pressed=True)
        self._show_attention(chosen)

    def _show_head(self) -> None:
        """Show the attention of the chosen head from role to role: the model's, and what the circuit has instead."""
        self.viewer.head = self.head.index
        self._show_drawing()

    def _show_attention(self, head: Head) -> None:
        roles, kind = self._few.roles.in_layer(head.layer), self.draft.circuit.heads.get(head)
        index = [roles.names.index(role) for role in roles.in_order]
        maps = {f"{head} in the model": self._attention[head.layer, head.index]}
        if kind is not None and kind not in (Idle(), Resample(), Intact()):
            pattern = head_pattern(head, kind, roles, self._few.inputs.shape[1]).expand(len(roles), -1, -1)
            example, at = torch.arange(len(roles))[:, None, None, None], roles.positions.transpose(1, 2)
            maps[f"{head} in the circuit"] = pattern[example, at[..., None], at[..., None, :]].mean(dim=(0, 1)).cpu()
        shown = [(title, one[index][:, index].tolist()) for title, one in maps.items()]
        self.attention.value = render("heat.html.jinja", maps=shown, roles=roles.in_order)

    def _show_example(self) -> None:
        """Show an example: its sequence, the model's answers, and where every head looks."""
        n = self.example.value
        told: dict[str, Any] = {
            "words": self._words[n],
            "answers": self._answers[n],
            "names": self.task.loss_components,
        }
        self.sequence.value = render("example.html.jinja", unit=getattr(self.task, "unit", ""), **told)
        viewer = attention_viewer(self.model, self._few, n)
        warn_if_large(viewer.panels[""])
        self.viewer.panels = viewer.contents
