"""The edges in a circuit diagram: where they start, where they end, and how many are drawn."""

from dataclasses import replace

import pytest

from circuits import circuit_diagram, path_patching
from circuits.figures.diagram_edges import INPUTS, MLP, READ, WRITTEN, _rails, drawn_edges
from circuits.tracing.edges import Sender


@pytest.fixture
def found(model, task, circuit):
    return path_patching(model, task, circuit, n_examples=16)


def lines(figure, which):
    """The lines of an input, as the points between gaps."""
    (trace,) = (trace for trace in figure.data if trace.name == INPUTS[which][0])
    pieces = [[]]
    for point in zip(trace.x, trace.y, strict=True):
        pieces = [*pieces, []] if None in point else [*pieces[:-1], [*pieces[-1], point]]
    return [piece for piece in pieces if len(piece) > 1]


def test_an_edge_leads_from_its_sender_to_the_start_of_the_arrow_that_reads_it(task, circuit, found):
    roles = task.examples(8, seed=0).roles
    figure = circuit_diagram(circuit, roles, 2, composition=found)
    column = roles.in_order.index("pair1.second")
    (key,) = (line for line in lines(figure, "K") if line[0][0] == column)
    assert (key[0], key[-1]) == ((column, 0 + WRITTEN), (column, 1 + READ))  # from L0H0 to L1H0
    assert max(x for x, _ in key) == column  # the rail is on the left
    query = next(line for line in lines(figure, "Q") if line[0][0] == roles.in_order.index("query"))
    assert query[0][1] < 0  # from the embedding


def test_an_edge_tells_what_it_costs_when_the_pointer_rests_on_it(task, circuit, found):
    figure = circuit_diagram(circuit, task.examples(8, seed=0).roles, 2, composition=found)
    said = [text for trace in figure.data for text in trace.hovertext or () if "<b>L0H0" in text]
    assert said == [
        "<b>L0H0</b> at pair1.second<br>read by L1H0 query -> pair1.second (K)<br>attention lost 1.00 ± 0.00<br>"
        "loss returned 2.000 ± 0.000"
    ]


def test_only_the_strongest_edges_of_an_input_are_drawn_and_the_title_says_so(task, circuit, found):
    key = next(edge for edge in found.of() if edge.input == "K" and edge.sender == Sender(0))
    weaker = [
        key.model_copy(
            update={"sender": Sender(0, index=index), "attention_lost": replace(key.attention_lost, mean=mean)}
        )
        for index, mean in ((1, 0.6), (2, 0.3))
    ]
    more = found.model_copy(update={"edges": (*weaker, *found.edges)})
    assert {edge.sender for edge in drawn_edges(more) if edge.input == "K"} >= {Sender(0), weaker[0].sender}
    assert weaker[1] not in drawn_edges(more)
    title = circuit_diagram(circuit, task.examples(8, seed=0).roles, 2, composition=found).layout.title.text
    assert title.endswith("2 attention paths; 6 edges")
    title = circuit_diagram(circuit, task.examples(8, seed=0).roles, 2, composition=more).layout.title.text
    assert title.endswith("7 edges (the strongest 2 of each input; 1 more in the table)")


def test_rails_beside_the_same_line_do_not_overlap(found):
    key = next(edge for edge in found.of() if edge.input == "K" and edge.sender == Sender(0))
    edges = [
        key.model_copy(update={"sender": Sender(0, is_mlp=mlp), "input": which})
        for mlp in (True, False)
        for which in "KV"
    ]
    rails = _rails(edges)
    assert sorted(lane for _, lane in rails) == [1, 2, 3, 4]
    assert rails[0][0].ends == (MLP, 1 + READ)  # the shortest is the innermost


def test_without_composition_the_diagram_has_no_legend(task, circuit):
    figure = circuit_diagram(circuit, task.examples(8, seed=0).roles, 2)
    assert not any(trace.showlegend for trace in figure.data)
