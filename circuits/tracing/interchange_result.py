"""The result of interchange interventions: a table, and heat maps."""

from __future__ import annotations

from circuits.losses.by_label import ByLabel
from circuits.losses.loss import Mean
from circuits.results import Decision, Number, Result
from circuits.settings import current
from circuits.task import Variable
from circuits.tracing.numbers import above, columns
from circuits.utils.lazy import pandas, plotly

RANDOM = "random position"  # in the place of a role


class Cell(Result):
    """One variable, exchanged at one role after one layer, and the answers to one loss component.

    Attributes:
        variable: the name of the variable.
        layer: the layer; -1 is before layer 0.
        role: the role, or ``random position``.
        component: the loss component; it depends on the variable.
        accuracy: the share of exchanged instances that give their partner's answer.
        control: the share of the other instances that keep their own answer; None without other instances.
        predicted: the accuracy that the paths of a circuit predict: 1, 0, or 1/2 if they do not decide; None without a
            circuit.
    """

    variable: str
    layer: int
    role: str
    component: str
    accuracy: Mean
    control: Mean | None
    predicted: Number | None

    @property
    def decision(self) -> Decision:
        """Whether the role carries the variable; undecided within three standard errors of ``carries``."""
        return above(self.accuracy, current().carries)


class InterchangeResult(Result):
    """Interchange accuracies for every variable, layer, role and loss component.

    Attributes:
        variables: the variables that were exchanged.
        n_examples: the number of examples.
        cells: the accuracies; those at random positions are last in every layer.
        unpatched: for every component, the share of exchanged instances that give their partner's answer without any
            intervention.
        unpatched_control: for every component, the share of the other instances that give their own answer without any
            intervention.
        control_by_label: ``control`` at the cell ``furthest``, split by the main group.
    """

    variables: tuple[Variable, ...]
    n_examples: int
    cells: tuple[Cell, ...]
    unpatched: dict[str, Number]
    unpatched_control: dict[str, Number]
    control_by_label: ByLabel | None

    @property
    def random_above(self) -> tuple[Cell, ...]:
        """The random positions with an accuracy above that without any intervention by three standard errors."""
        random = [cell for cell in self.cells if cell.role == RANDOM]
        above = [cell.accuracy.mean - self.unpatched[cell.component] for cell in random]
        sure = zip(random, above, strict=True)
        return tuple(cell for cell, more in sure if more > current().sure * cell.accuracy.standard_error)

    @property
    def furthest(self) -> Cell | None:
        """The cell whose control is furthest below ``unpatched_control``; None without a control."""
        below = [(self.unpatched_control[one.component] - one.control.mean, one) for one in self.cells if one.control]
        return max(below, key=lambda one: one[0], default=(0.0, None))[1]

    @property
    def agreement(self) -> tuple[int, int, int] | None:
        """How often the model and the circuit agree on a cell.

        The number of cells in which both carry a variable, the number in which at least one of them does, and the
        number that the circuit or the model leaves undecided, which count for neither. None without a circuit.
        """
        cells = [cell for cell in self.cells if cell.predicted is not None]
        decided = [cell for cell in cells if cell.decision != "undecided" and cell.predicted != current().carries]
        carry = [(cell.decision == "holds", cell.predicted == 1) for cell in decided]
        return (sum(map(all, carry)), sum(map(any, carry)), len(cells) - len(decided)) if cells else None

    def table(self) -> pandas.DataFrame:
        """Return one row for every variable, layer, role and component."""
        return pandas.DataFrame(
            {
                **cell.model_dump(include={"variable", "layer", "role", "component"}),
                **columns("accuracy", cell.accuracy),
                **columns("control", cell.control),
                "predicted": cell.predicted,
            }
            for cell in self.cells
        )

    def __str__(self) -> str:
        return str(self.table())

    def figure(self) -> plotly.graph_objects.Figure:
        """Draw a map of roles and layers for every variable, and every component that depends on it.

        Circles are cells in which the circuit's paths carry the variable, squares all others.
        """
        from plotly import express

        table = self.table().assign(circuit=lambda cells: cells.predicted.eq(1).map({True: "carries", False: ""}))
        figure = express.scatter(
            table, x="role", y="layer", color="accuracy", symbol="circuit", facet_row="variable", facet_col="component",
            symbol_map={"carries": "circle", "": "square"}, range_color=(0, 1), color_continuous_scale="Blues",
            hover_data=["control", "predicted"], template="plotly_white",
            height=120 + len(self.variables) * (80 + 18 * table.layer.nunique()),
        )  # fmt: skip
        return figure.update_traces(marker={"size": 14}).update_layout(legend={"orientation": "h", "y": 1.1})
