"""A circuit diagram: its arrows, and who sends what they read. No figure can be sent to a server."""

import re
from dataclasses import replace

import plotly.io
import pytest
import torch
from plotly.graph_objects import Figure

from circuits import Circuit, Head, OneHot, Roles, path_patching
from circuits.circuit_file import parse_circuit
from circuits.figures.diagram import circuit_diagram, colour, senders
from circuits.figures.page import figure_element
from circuits.mechanisms import Condition
from tests.refusals import assert_refused


@pytest.fixture
def composition(model, task, circuit):
    return path_patching(model, task, circuit, n_examples=16)


@pytest.fixture
def roles(task):
    return task.examples(8, seed=0).roles


def test_the_head_and_its_condition_are_written_at_their_arrow_which_has_the_colour_of_the_head(roles):
    where = {("query", "pair1.second"): Condition("position", "query", (7, 8))}
    drawn = circuit_diagram(Circuit({"L1H0": OneHot({"query": "pair1.second"}, where=where)}), roles).svg
    assert ">L1H0 position 7, 8 of query</text>" in drawn
    assert f'fill="{colour(Head(1, 0))}"' in drawn


def test_the_lowest_head_is_at_the_bottom_and_an_arrow_leads_up_to_the_role_that_attends(roles, circuit):
    drawn = circuit_diagram(circuit, roles).svg
    height = {head: float(y) for y, head in re.findall(r'y="([\d.]+)" text-anchor="start"[^>]*>(L\dH0) ', drawn)}
    assert height["L0H0"] > height["L1H0"]
    columns = {role: float(x) for x, role in re.findall(r'<text x="([\d.]+)"[^>]*middle"[^>]*>([\w.]+)<', drawn)}
    start, angle = re.findall(
        r'L1H0 query -&gt; pair1.second[^/]*/title><g transform="translate\(([\d.]+) [\d.]+\) rotate\((\S+)\)', drawn
    )[0]
    assert float(start) == columns["pair1.second"] < columns["query"]
    assert -90 < float(angle) < 0


def test_labels_of_two_arrows_that_would_overlap_stand_one_above_the_other(roles):
    rows = "query: [{to: pair1.first, position: [7]}, {to: pair1.second, position: [8]}]"
    drawn = circuit_diagram(parse_circuit(f"heads:\n  L1H0:\n    {rows}\n"), roles).svg
    low, high = sorted(map(float, re.findall(r'y="([\d.]+)" text-anchor="\w+"[^>]*>L1H0 position', drawn)))
    assert high - low > 12  # the height of the letters


def test_only_the_strongest_senders_of_an_input_stand_beside_a_head(roles, circuit, composition):
    key = next(edge for edge in composition.of() if edge.input == "K" and edge.sender == "L0H0")
    assert "K: L0H0" in circuit_diagram(circuit, roles, composition=composition).svg
    weaker = [
        key.model_copy(update={"sender": f"L0H{index}", "attention_lost": replace(key.attention_lost, mean=mean)})
        for index, mean in ((1, 0.6), (2, 0.3))
    ]
    text, every = senders(composition.model_copy(update={"edges": (*weaker, *composition.edges)}), key.path.head)
    assert "K: L0H0, L0H1;" in text
    assert "L0H2 at pair1.second, read by L1H0 query -> pair1.second (K); attention lost 0.30" in every


def test_no_figure_has_a_button_that_sends_it_to_a_server(roles):

    assert "showSendToCloud" in figure_element(Figure(), "a")
    shown = [plotly.io.renderers[name].config for name in ("notebook", "vscode")]
    assert [(one["showSendToCloud"], one["displaylogo"]) for one in shown] == [(False, False)] * 2


def test_a_circuit_that_does_not_fit_the_roles_is_refused_and_one_without_arrows_is_drawn():
    alone = Roles.of({"answer": torch.tensor([3])})
    assert "L0H0" in circuit_diagram(Circuit({"L0H0": "previous"}), alone).svg
    assert_refused("the unknown role 'x'", circuit_diagram, Circuit({"L0H0": {"x": "answer"}}), alone)
    assert_refused("pattern of 3 positions", circuit_diagram, Circuit({"L0H0": torch.eye(3)}), alone)
