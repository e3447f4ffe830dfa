"""A circuit diagram: its arrows, and the edges beside the lines of the roles. No figure can be sent to a server."""

from dataclasses import replace

import plotly.io
import pytest

from circuits import Circuit, OneHot, path_patching
from circuits.explorer.explorer import attention_panel
from circuits.figures.diagram import INPUTS, READ, WRITTEN, circuit_diagram, drawn_edges
from circuits.figures.page import figure_element
from circuits.mechanisms import Condition
from circuits.tracing.edges import Sender


@pytest.fixture
def composition(model, task, circuit):
    return path_patching(model, task, circuit, n_examples=16)


@pytest.fixture
def roles(task):
    return task.examples(8, seed=0).roles


def lines(figure, which):
    """The lines of an input: for each edge its four corners."""
    (trace,) = (trace for trace in figure.data if trace.name == INPUTS[which][0])
    points = [*zip(trace.x, trace.y, strict=True)]
    return [points[start : start + 4] for start in range(0, len(points), 5)]


def test_the_head_and_its_condition_are_written_at_their_arrow_and_there_is_no_legend(roles):
    where = {("query", "pair1.second"): Condition("position", "query", (7, 8))}
    figure = circuit_diagram(Circuit({"L1H0": OneHot({"query": "pair1.second"}, where=where)}), roles, n_layers=2)
    assert [trace.text for trace in figure.data] == ["L1H0<br>position 7, 8 of query"]
    assert not any(trace.showlegend for trace in figure.data)


def test_an_edge_leads_from_its_sender_to_the_start_of_the_arrow_that_reads_it(roles, circuit, composition):
    figure = circuit_diagram(circuit, roles, 2, composition=composition)
    column = roles.in_order.index("pair1.second")
    (key,) = (line for line in lines(figure, "K") if line[0][0] == column)
    assert (key[0], key[-1]) == ((column, 0 + WRITTEN), (column, 1 + READ))  # from L0H0 to L1H0
    assert max(x for x, _ in key) == column  # on the left
    query = next(line for line in lines(figure, "Q") if line[0][0] == roles.in_order.index("query"))
    assert query[0][1] < 0  # from the embedding
    (text,) = (text for trace in figure.data for text in trace.hovertext or () if "<b>L0H0" in text)
    assert "read by L1H0 query -> pair1.second (K)<br>attention lost 1.00 ± 0.00" in text


def test_only_the_strongest_edges_of_an_input_are_drawn_each_in_its_place(roles, circuit, composition):
    key = next(edge for edge in composition.of() if edge.input == "K" and edge.sender == Sender(0))
    weaker = [
        key.model_copy(
            update={"sender": Sender(0, index=index), "attention_lost": replace(key.attention_lost, mean=mean)}
        )
        for index, mean in ((1, 0.6), (2, 0.3))
    ]
    more = composition.model_copy(update={"edges": (*weaker, *composition.edges)})
    assert {edge.sender for edge in drawn_edges(more) if edge.input == "K"} >= {Sender(0), weaker[0].sender}
    assert weaker[1] not in drawn_edges(more)
    figure = circuit_diagram(circuit, roles, 2, composition=more)
    assert figure.layout.title.text.endswith("7 edges (the strongest 2 of each input; 1 more in the table)")
    beside = [line[1] for which in "KV" for line in lines(figure, which)]
    assert len({*beside}) == len(beside)


def test_no_figure_has_a_button_that_sends_it_to_a_server(roles, circuit):
    assert "showSendToCloud" in figure_element(circuit_diagram(circuit, roles, 2), "a")
    shown = [attention_panel(["a"])._config, *(plotly.io.renderers[name].config for name in ("notebook", "vscode"))]
    assert [(one["showSendToCloud"], one["displaylogo"]) for one in shown] == [(False, False)] * 3
