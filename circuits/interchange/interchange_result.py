"""The result of interchange interventions: tables, heat maps, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from jaxtyping import Bool, Float

from circuits.interchange.variables import Variable
from circuits.losses.by_label import ByLabel
from circuits.losses.loss import SURE
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly, torch

KEPT = 0.02  # a share of instances that lose their own answers, below which it is not worth a number
UNDECIDED = 0.5  # the predicted accuracy of a cell that the paths of a circuit do not decide
RANDOM = "random position"  # in the place of a role, in tables and heat maps
CARRIES = 0.5  # a role carries a variable if the interchange accuracy is at least this


@dataclass(frozen=True)
class InterchangeResult:
    """Interchange accuracies for every variable, layer, role and loss component.

    Layers have one row more than the model: row 0 is before the first layer, row l + 1 is after layer l. Components
    have one entry more than the loss: the last is their mean. A component that does not depend on the variable is NaN.

    Attributes:
        variables: the variables that were exchanged.
        roles: the roles.
        components: the loss components.
        n_examples: the number of examples.
        accuracy: the share of exchanged instances that give their partner's answer.
        random: ``accuracy`` at random positions instead of a role; NaN if every position is one of the two instances'.
        control: the share of the other instances that keep their own answer; NaN if an example has two instances only.
        standard_error: the standard errors of ``accuracy``, over examples.
        random_standard_error: the standard errors of ``random``.
        control_standard_error: the standard errors of ``control``.
        control_by_label: ``control`` at the cell where it is furthest from ``own``, split by the main group.
        unpatched: the share of exchanged instances that give their partner's answer without any intervention.
        own: the share of the other instances that give their own answer without any intervention.
        predicted: the accuracies that the paths of a circuit predict; None without a circuit.
    """

    variables: tuple[Variable, ...]
    roles: tuple[str, ...]
    components: tuple[str, ...]
    n_examples: int
    accuracy: Float[torch.Tensor, "variable layer role component_or_mean"]
    random: Float[torch.Tensor, "variable layer component_or_mean"]
    control: Float[torch.Tensor, "variable layer role component_or_mean"]
    standard_error: Float[torch.Tensor, "variable layer role component_or_mean"]
    random_standard_error: Float[torch.Tensor, "variable layer component_or_mean"]
    control_standard_error: Float[torch.Tensor, "variable layer role component_or_mean"]
    control_by_label: ByLabel | None
    unpatched: Float[torch.Tensor, " component"]
    own: Float[torch.Tensor, " component"]
    predicted: Float[torch.Tensor, "variable layer role component"] | None = None

    @property
    def carries(self) -> Bool[torch.Tensor, "variable layer role component"]:
        """Whether a role carries a variable to the answer of a component, after a layer."""
        return (self.accuracy[..., :-1] >= CARRIES) & ~self.undecided

    @property
    def undecided(self) -> Bool[torch.Tensor, "variable layer role component"]:
        """Whether an accuracy is within three standard errors of ``CARRIES``."""
        return (self.accuracy - CARRIES)[..., :-1].abs() <= SURE * self.standard_error[..., :-1]

    @property
    def random_above(self) -> Bool[torch.Tensor, "variable layer component"]:
        """Where random positions carry a variable: above the share without any intervention by three errors."""
        return (self.random[..., :-1] - self.unpatched) > SURE * self.random_standard_error[..., :-1]

    @property
    def agreement(self) -> tuple[int, int, int] | None:
        """How often the model and the circuit agree on a cell: a variable, layer, role and component.

        The number of cells that both carry a variable through, the number that at least one of them does, and the
        number that the circuit or the model leaves undecided, which count for neither. None without a circuit.
        """
        if self.predicted is None:
            return None
        depends = ~self.accuracy[..., :-1].isnan()
        undecided, paths = (self.predicted == UNDECIDED) | self.undecided, self.predicted > UNDECIDED
        both, either = ((own & depends & ~undecided).sum() for own in (self.carries & paths, self.carries | paths))
        return int(both), int(either), int((undecided & depends).sum())

    def through(self, variable: int, component: int) -> dict[str, list[tuple[int, int]]]:
        """Return the roles that carry a variable to a component, each with its ranges of rows, first and last."""
        cells = self.carries[variable, :, :, component]
        found = {}
        for role, own in zip(self.roles, cells.T.tolist(), strict=True):
            runs = [
                [row for row, _ in run] for there, run in groupby(enumerate(own), key=lambda cell: cell[1]) if there
            ]
            if runs:
                found[role] = [(run[0], run[-1]) for run in runs]
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in words."""
        said = []
        for index, variable in enumerate(self.variables):
            ways: dict[str, list[str]] = {}
            for place, component in enumerate(self.components):
                if component in variable.components:
                    ways.setdefault(self._said(self.through(index, place)), []).append(component)
            for way, components in ways.items():
                said.append(
                    f"{variable.name} reaches the answer{'s' * (len(components) > 1)} {', '.join(components)} {way}."
                )
        if self.undecided.any():
            cells = [
                f"{self.variables[index].name} at {self.roles[place]} {self._rows(row, row)} ({self.components[at]})"
                for index, row, place, at in self.undecided.nonzero().tolist()
            ]
            said.append(f"Within three standard errors of {CARRIES:g}, so undecided: {', '.join(cells)}.")
        said.append(
            "Without an intervention instances give their partner's answer in a share of "
            f"{_list(self.components, self.unpatched)}."
        )
        if not (random := self.random[..., :-1]).isnan().all():
            index, row, at = largest(random - self.unpatched)
            above, n_cells = int(self.random_above.sum()), int((~random.isnan()).sum())
            said.append(
                f"At random positions it is higher by more than three standard errors in {above} of {n_cells} cells; "
                f"the highest is {random[index, row, at]:.3f} ± {self.random_standard_error[index, row, at]:.3f} "
                f"({self.components[at]}, with {self.variables[index].name} {self._rows(row, row)})."
            )
        if not self.control.isnan().all():
            index, row, place, at = furthest(self.own, self.control)
            there = self.control[index, row, place, at]
            if self.own[at] - there < KEPT:
                said.append("The instances beside keep their own answers.")
            else:
                said.append(
                    f"The instances beside should keep their own answers; furthest from this is "
                    f"{self.components[at]} in {there:.2f} instead of {self.own[at]:.2f}, "
                    f"with {self.variables[index].name} at {self.roles[place]} "
                    f"{self._rows(row, row)}{f' ({self.control_by_label})' if self.control_by_label else ''}."
                )
        if self.agreement is not None:
            both, either, undecided = self.agreement
            said.append(
                f"Of the {either} cells that carry a variable by the model or by the circuit's paths, both say so of "
                f"{both}; {undecided} more are undecided, by the paths alone or by the model."
            )
        return tuple(said)

    def _said(self, through: dict[str, list[tuple[int, int]]]) -> str:
        """Return the roles and layers of a way in words."""
        ways = [f"{role} ({', '.join(self._rows(*run) for run in runs)})" for role, runs in through.items()]
        return f"through {', '.join(ways)}" if ways else "through no single role"

    def _rows(self, first: int, last: int) -> str:
        """Return a range of rows as text."""
        if first == 0:
            return f"up to layer {last - 1}" if last else "before layer 0"
        if first == last < self.accuracy.shape[1] - 1:
            return f"after layer {first - 1}"
        if last == self.accuracy.shape[1] - 1:
            return f"from layer {first - 1} on"
        return f"after layers {first - 1} to {last - 1}"

    def table(self) -> pd.DataFrame:
        """Return one row for every variable, layer, role and component; layer -1 is before layer 0.

        The last role of every layer is ``random position``.
        """
        rows = []
        for index, variable in enumerate(self.variables):
            for row in range(self.accuracy.shape[1]):
                for place, role in enumerate(self.roles):
                    for component in variable.components:
                        at = index, row, place, self.components.index(component)
                        rows.append(
                            {"variable": variable.name, "layer": row - 1, "role": role, "component": component}
                            | {name: getattr(self, name)[at].item() for name in self._measured}
                        )
                for component in variable.components:
                    cell = index, row, self.components.index(component)
                    rows.append(
                        {"variable": variable.name, "layer": row - 1, "role": RANDOM, "component": component}
                        | {"accuracy": self.random[cell].item()}
                        | {"standard_error": self.random_standard_error[cell].item()}
                    )
        return pd.DataFrame(rows)

    @property
    def _measured(self) -> Sequence[str]:
        names = ("accuracy", "standard_error", "control", "control_standard_error")
        return names if self.predicted is None else (*names, "predicted")

    def figure(self) -> plotly.graph_objects.Figure:
        """Draw one heat map of roles and layers for every variable and component that depends on it."""
        from circuits.interchange.interchange_figure import interchange_figure

        return interchange_figure(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers; tensors are nested lists ``[variable][layer][role][component]``, with null for NaN."""
        names = (*self._measured, "random", "random_standard_error", "unpatched", "own")
        tensors = {name: _plain(getattr(self, name).tolist()) for name in names}
        return {
            "variables": {variable.name: {"role": variable.role} for variable in self.variables},
            "roles": [*self.roles],
            "components": [*self.components, "mean"],
            "examples": self.n_examples,
            **tensors,
            "random_above": None if self.random.isnan().all() else int(self.random_above.sum()),
            "control_by_label": self.control_by_label and self.control_by_label.to_json(),
            "agreement": None if self.agreement is None else [*self.agreement],
            "sentences": [*self.sentences()],
        }


def largest(values: Float[torch.Tensor, " *axes"]) -> tuple[int, ...]:
    """Return the index of the largest number; NaN is never the largest."""
    place = values.nan_to_num(-torch.inf).argmax()
    return tuple(int(one) for one in torch.unravel_index(place, values.shape))


def furthest(
    own: Float[torch.Tensor, " component"], control: Float[torch.Tensor, "variable layer role component_or_mean"]
) -> tuple[int, ...]:
    """Return the variable, layer, role and component at which the control is furthest below the share ``own``."""
    return largest(own - control[..., :-1])


def _list(names: Sequence[str], shares: Float[torch.Tensor, " component"]) -> str:
    return ", ".join(f"{name} {share:.3f}" for name, share in zip(names, shares.tolist(), strict=True))


def _plain(value: Any) -> Any:
    """Return nested lists with None for NaN."""
    return [_plain(one) for one in value] if isinstance(value, list) else None if value != value else round(value, 4)
