"""The widgets of the explorer in a notebook; their state is in ``exploration.py``."""

from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import plotly.graph_objects as go
import traitlets

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.circuit_file import load_circuit
from circuits.composition.edges import Edge
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.explorer.drawing import SMALLEST, drawing, full_width
from circuits.explorer.exploration import IN_PASSING, THRESHOLD, Exploration
from circuits.figures.page import viewer_code
from circuits.losses.loss import Loss
from circuits.model.transformer import Transformer
from circuits.task import Task
from circuits.utils.files import to_path
from circuits.viewer.viewer import attention_viewer, warn_if_large

HERE = Path(__file__).parent
INK, GRID = "#767676", "rgba(128, 128, 128, 0.3)"  # readable on white and on black
BARS = ("unablated", "with the circuit")
NEEDED = {"directly": "needed", "indirectly": "needed indirectly", "undecided": "undecided", "no": "not needed"}


@entrance
def explore(
    model: Transformer,
    task: Task,
    circuit: Circuit | None = None,
    seed: int = 0,
    threshold: float = THRESHOLD,
) -> "Explorer":
    """Explore a circuit in a notebook: remove paths, add paths, and see the loss at once.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task: examples with roles, and a loss.
        circuit: the first circuit; by default all heads are intact.
        seed: the seed of the examples.
        threshold: a loss below it counts as low, for ``minimal?`` and for the report; the paper uses 0.05.

    Raises:
        BadInput: the circuit does not fit the model, or an argument has the wrong type.
    """
    return Explorer(Exploration(model, task, Circuit() if circuit is None else circuit, seed, threshold))


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
        exploration: the exploration; after a change in code, call ``show``.
        said: the last message, as a line of text.
    """

    def __init__(self, exploration: Exploration) -> None:
        """Show an exploration."""
        self.exploration = exploration
        self._order = exploration.few.roles.in_order
        self._labels: dict[AttentionPath, str] = {}
        self._exactly = self._failed = False
        self._edges: tuple[Edge, ...] = ()
        self._path: AttentionPath | None = None  # the path that was clicked last
        heads = [str(head) for head in exploration.heads]
        useful = exploration.draft.hypothesis.heads_with_paths
        self.head = ipywidgets.Dropdown(
            options=heads, value=str(useful[-1]) if useful else heads[-1], description="head"
        )
        self.example = ipywidgets.IntSlider(0, 0, len(exploration.few) - 1, description="example")
        self.source = ipywidgets.Dropdown(options=self._order, value=self._order[-1], description="from")
        self.target = ipywidgets.Dropdown(options=self._order, description="to")
        self.file = ipywidgets.Text("circuit.yaml", description="as")
        basis = f"1 1 {SMALLEST * full_width(exploration):g}px"  # with less room, the drawing gets its own row
        self.diagram = Diagram(layout={"flex": basis, "min_width": "0", "overflow": "auto"})
        self.viewer = AttentionHeads()
        self.losses, self.attention = self._loss_figure(), self._attention_figure()
        self.line = ipywidgets.HTML()
        self.bar = ipywidgets.FloatProgress(min=0.0, max=1.0, layout={"visibility": "hidden"})
        self.buttons = {
            name: ipywidgets.Button(description=name, tooltip=told, layout={"width": "auto"})
            for name, told, _ in self._actions()
        }
        for name, _, action in self._actions():
            self.buttons[name].on_click(partial(self._do, action))
        self.diagram.on_msg(lambda _, message, __: self._clicked(message))
        self.head.observe(lambda _: self._choose(), "value")
        self.example.observe(lambda _: self._show_example(), "value")
        row = partial(ipywidgets.HBox, layout={"flex_flow": "row wrap"})
        named = self.buttons
        super().__init__(
            [
                row([named[name] for name in ("undo", "redo", "reset", "exact", "minimal?", "report")]),
                row([self.source, self.target, named["draw"], self.file, named["save"]]),
                self.line,
                self.bar,
                row([self.diagram, ipywidgets.VBox([self.losses, self.head, self.attention])]),
                self.example,
                self.viewer,
            ]
        )
        self._chosen = Head.parse(self.head.value)
        self.show()
        self._show_head()
        self._show_example()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Add a picture and a line of text to the widget, for readers who do not run the notebook."""
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        picture = self.diagram.svg.replace('style="', 'style="background: #fff; color: #000; ', 1)
        return {**bundle, "image/svg+xml": picture, "text/plain": self.said}

    @property
    def said(self) -> str:
        """The text of the message line, without markup."""
        return str(self._said)

    def show(self) -> None:
        """Show the current exploration; the drawing is sent first."""
        self._show_drawing()
        loss, unablated = (of(self._exactly) for of in (self.exploration.loss, self.exploration.unablated))
        self._told = (
            f"The circuit's loss is {loss} on {_examples(loss)}, the unablated loss {unablated} on "
            f"{_examples(unablated)}."
        )
        self._say(self._told)
        with self.losses.batch_update():
            for trace, name, own in zip(self.losses.data, BARS, (unablated, loss), strict=True):
                values = [own.mean, *own.components.values()]
                trace.update(y=values, text=[f"{value:.3f}" for value in values], name=f"{name}, {_examples(own)}")

    def _actions(self) -> tuple[tuple[str, str, Callable[[], str | None]], ...]:
        exploration = self.exploration
        return (
            ("undo", "Undo one change", exploration.undo),
            ("redo", "Redo one change", exploration.redo),
            ("reset", "Go back to the first circuit", exploration.reset),
            ("exact", "Measure the losses on all examples", self._exact),
            ("minimal?", "Test on few examples whether every path is needed", self._minimal),
            ("report", "Validate on fresh examples, and write the report beside the file", self._report),
            ("draw", "Add a path to the chosen head, or retarget one", self._draw),
            ("save", "Write the circuit as YAML", self._save),
        )

    def _do(self, action: Callable[[], str | None], *_: Any) -> None:
        """Run an action, show its result, and report an error."""
        before = self.exploration.draft
        self._exactly, self._edges, self._failed = False, (), True
        try:
            said = action()
        except Exception as error:  # a notebook does not show the exceptions of a click
            self._complain(error)
            return
        finally:
            self.bar.layout.visibility = "hidden"
        if self.exploration.draft != before:
            self._labels = {}
        try:
            self.show()
        except Exception as error:  # the losses on display belong to another circuit
            with self.losses.batch_update():
                for trace in self.losses.data:
                    trace.update(y=[], text=[])
            self._complain(error)
            return
        self._failed = False
        if said:
            self._say(said if self.exploration.draft == before else f"{said} {self._told}")

    def _clicked(self, act: str) -> None:
        what, _, which = act.partition(" ")
        if what == "head":
            self._chosen = head = Head.parse(which)
            self._path = None
            self._do(partial(self.exploration.cycle, head))
        else:
            there = {str(path): path for path in self.exploration.draft.paths}
            if which not in there:  # the click came before the new drawing
                self._say(f"{which} is not a path of the circuit any more.", wrong=True)
                return
            path = there[which]
            self._chosen, self._path, head = path.head, path, path.head
            self._do(partial(self.exploration.toggle, path))
            if self.head.value == str(head):
                self._choose()
        self.head.value = str(head)

    def _draw(self) -> str | None:
        lost, back = self.exploration.draw(Head.parse(self.head.value), self.source.value, self.target.value)
        said = [f"{path} was removed." for path in lost] + [f"{path} was put back." for path in back]
        return " ".join(said) or None

    def _exact(self) -> None:
        self.exploration.exactly(self._progress)
        self._exactly = True

    def _minimal(self) -> str:
        found = self.exploration.minimal(self._progress)
        self._labels = {path: NEEDED[result.needed] for path, result in found.items()}
        counted = [f"{path}: {NEEDED[result.needed]}" for path, result in found.items()]
        asked = f"On {IN_PASSING} examples, at the threshold {self.exploration.threshold:g}"
        if found and self.exploration.loss().mean >= self.exploration.threshold:
            return f"{asked}: the loss of the circuit is not below it, so no path can be tested."
        return f"{asked}: {'; '.join(counted) or 'the circuit has no path'}."

    def _save(self) -> str:
        file = self._file()
        replaced = file.exists()
        if replaced:
            _check_is_circuit(file)
        self.exploration.save(file)
        return f"The circuit is saved in {file}{'; the earlier circuit is overwritten' if replaced else ''}."

    def _report(self) -> str:
        file = self._file()
        page = self.exploration.report(file.with_name(f"{file.stem}_report"), self._progress)
        return f"The report is at {page}."

    def _file(self) -> Path:
        """Return the path of the file to write.

        Raises:
            BadInput: the text is not the name of a file.
        """
        named = self.file.value.strip()
        path = Path(named)
        if path.name in ("", "..") or "\0" in named:
            raise BadInput(f"{named!r} is not the name of a file; expected a name such as circuit.yaml")
        return to_path(path)

    def _progress(self, share: float) -> None:
        self.bar.layout.visibility, self.bar.value = "visible", share

    def _complain(self, error: Exception) -> None:
        self._say(str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}", wrong=True)

    def _say(self, text: str, wrong: bool = False) -> None:
        self._said = text
        mark = "<b>Not done.</b> " if wrong else ""
        self.line.value = f'<div role="status" aria-live="polite">{mark}{escape(text)}</div>'

    def _show_drawing(self) -> None:
        self.diagram.svg = drawing(self.exploration, self._chosen, self._labels, self._edges)

    def _show_head(self) -> None:
        self._chosen = head = Head.parse(self.head.value)
        roles = self.exploration.few.roles.names
        index = [roles.index(role) for role in self._order]
        values = self.exploration.attention[head.layer, head.index][index][:, index]
        with self.attention.batch_update():
            self.attention.data[0].z = values.numpy().round(3)
            self.attention.layout.title.text = f"{head}: attention, from role (down) to role (across)"
        self.viewer.head = self.exploration.heads.index(head)
        self._show_drawing()

    def _choose(self) -> None:
        """Show the chosen head, and the found edges of the path that was clicked, or of all its paths.

        They are measured when they are first asked for.
        """
        self._show_head()
        head, path, self._path = self._chosen, self._path, None
        if self._failed:  # the message stays
            return
        try:
            if not self.exploration.has_edges(head):
                self._say(f"{self._told} Path patching of {head} on {IN_PASSING} examples …")
            found = self.exploration.edges(head, self._progress)
        except Exception as error:
            self._say(f"{self._told} The edges of {head} cannot be measured: {error}")
            return
        finally:
            self.bar.layout.visibility = "hidden"
        paths = [own for own in found.attention if path in (None, own)] if found else []
        if found and paths:
            self._edges = tuple(edge for own in paths for edge in found.of(own))
            self._show_drawing()
            said = " ".join(map(found.sentence, paths))
            self._say(f"{self._told} {said} (Path patching on {IN_PASSING} examples.)")

    def _show_example(self) -> None:
        viewer = attention_viewer(self.exploration.model, self.exploration.few, self.example.value)
        warn_if_large(viewer.panels[""])
        self.viewer.panels = viewer.to_json()

    def _loss_figure(self) -> go.FigureWidget:
        names = ["mean", *self.exploration.task.loss_components]
        bars = [
            go.Bar(
                x=names,
                name=name,
                marker={"color": colour, "pattern": {"shape": shape}},
                textposition="outside",
                textfont={"size": 10},
                constraintext="none",
                cliponaxis=False,
            )
            for name, colour, shape in zip(BARS, ("#8a8a8a", "#0072B2"), ("", "/"), strict=True)
        ]
        layout = {
            "yaxis": {"rangemode": "tozero", "title": {"text": "loss"}, "gridcolor": GRID, "zerolinecolor": GRID},
            "barmode": "group",
            "bargap": 0.1,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            "height": 240,
        }
        return go.FigureWidget(bars, _plain(layout))

    def _attention_figure(self) -> go.FigureWidget:
        heat = go.Heatmap(
            x=self._order, y=self._order, colorscale="Blues", zmin=0, zmax=1, texttemplate="%{z:.2f}", showscale=False
        )
        return go.FigureWidget([heat], _plain({"yaxis": {"autorange": "reversed"}, "height": 330}))


def _check_is_circuit(file: Path) -> None:
    """Raise BadInput if the file is not a circuit, so that no other file is overwritten."""
    try:
        load_circuit(file)
    except BadInput as error:
        raise BadInput(f"{file} exists and is not a circuit; expected another name") from error


def _plain(layout: dict[str, Any]) -> dict[str, Any]:
    """Return a layout that is readable on white and on black."""
    clear = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": INK}}
    title = {"text": "", "font": {"size": 13}}
    return {**clear, "width": 400, "margin": {"t": 40, "b": 40, "l": 80, "r": 10}, "title": title, **layout}


def _examples(loss: Loss) -> str:
    return f"{loss.n_examples:,} examples"
