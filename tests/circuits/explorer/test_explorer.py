from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput, Circuit, Head, OneHot, evaluate, load_circuit
from circuits.circuit import AttentionPath
from circuits.explorer import explore
from circuits.explorer.draft import Draft
from circuits.explorer.drawing import drawing
from circuits.explorer.exploration import AT_ONCE, EXACTLY, Exploration
from circuits.figures.diagram import circuit_diagram
from circuits.mechanisms import Condition, Identity, Previous, Uniform
from tests.handmade import InductionTask

FIRST, SECOND = Head(0, 0), Head(1, 0)
FETCH = AttentionPath(SECOND, "query", "pair1.second")
JOIN = AttentionPath(FIRST, "*", "previous")
HYPOTHESIS = Circuit({FIRST: Previous(), SECOND: OneHot({"query": "pair1.second"})})


def test_a_path_is_taken_away_and_put_back():
    without = Draft(HYPOTHESIS).toggled(FETCH)
    assert without.circuit == HYPOTHESIS.without(FETCH)
    assert without.toggled(FETCH).circuit == HYPOTHESIS
    assert Draft(HYPOTHESIS).toggled(JOIN).circuit.heads[FIRST] == Uniform()


def test_a_head_whose_only_path_was_taken_away_goes_on_round_from_uniform():
    draft, seen = Draft(HYPOTHESIS).toggled(JOIN), []
    for _ in range(4):
        seen.append(draft.state(FIRST))
        draft = draft.next(FIRST)
    assert seen == ["uniform", "identity", "previous", "intact"]
    assert draft.made(FIRST, "previous") == Draft(HYPOTHESIS)


def test_a_head_goes_round_all_that_it_can_be_made_to_do():
    draft, seen = Draft(HYPOTHESIS), []
    for _ in range(5):
        draft = draft.next(SECOND)
        seen.append((draft.state(SECOND), draft.circuit.heads.get(SECOND)))
    assert seen == [
        ("intact", None),
        ("uniform", Uniform()),
        ("identity", Identity()),
        ("previous", Previous()),
        ("paths", OneHot({"query": "pair1.second"})),
    ]
    assert draft == Draft(HYPOTHESIS)


def test_a_head_that_is_made_previous_has_a_path_which_can_be_taken_away():
    draft, before = Draft(HYPOTHESIS).made(SECOND, "previous"), AttentionPath(SECOND, "*", "previous")
    assert draft.paths == {JOIN: True, FETCH: False, before: True}
    assert draft.toggled(before) == Draft(HYPOTHESIS).made(SECOND, "uniform")
    with pytest.raises(BadInput, match=r"the circuit has no path L1H0 \* -> previous"):
        Draft(HYPOTHESIS).toggled(before)


def test_a_head_without_paths_of_its_own_has_none_to_go_back_to():
    assert Draft(HYPOTHESIS).states(FIRST) == ("uniform", "identity", "previous", "intact")
    assert Draft(HYPOTHESIS).state(Head(5, 0)) == "intact"


def test_the_chains_on_which_a_path_is_there_stand_beside_it(model, task):
    where = {("query", "pair1.second"): Condition("position", "query", (7, 8))}
    circuit = Circuit({Head(1, 0): OneHot({"query": "pair1.second"}, where=where)})
    drawn = drawing(Exploration(model, task, circuit), Head(0, 0))
    assert ">position 7, 8 of query</text>" in drawn
    diagram = circuit_diagram(circuit, task.examples(8, seed=0).roles, n_layers=2)
    assert [trace.text for trace in diagram.data] == ["position 7, 8 of query"]


def test_paths_outlast_that_their_head_is_set_aside():
    draft = Draft(HYPOTHESIS).made(SECOND, "identity")
    assert not draft.paths[FETCH]
    assert draft.toggled(FETCH).circuit == HYPOTHESIS


def test_a_path_that_is_drawn_takes_the_place_of_the_one_from_the_same_role():
    draft = Draft(HYPOTHESIS).toggled(FETCH).drawn(AttentionPath(SECOND, "query", "pair1.first"))
    assert draft.circuit.heads[SECOND] == OneHot({"query": "pair1.first"})
    more = Draft(HYPOTHESIS).drawn(AttentionPath(SECOND, "pair1.second", "pair1.first"))
    assert more.circuit.heads[SECOND] == OneHot({"query": "pair1.second", "pair1.second": "pair1.first"})
    assert Draft(Circuit()).drawn(FETCH).circuit == Circuit({SECOND: OneHot({"query": "pair1.second"})})


@given(st.lists(st.sampled_from(["toggle fetch", "toggle join", "next first", "next second", "next third"])))
def test_whatever_is_done_can_be_undone_step_by_step(steps):
    moves = {
        "toggle fetch": lambda draft: draft.toggled(FETCH),
        "toggle join": lambda draft: draft.toggled(JOIN),
        "next first": lambda draft: draft.next(FIRST),
        "next second": lambda draft: draft.next(SECOND),
        "next third": lambda draft: draft.next(Head(2, 0)),
    }
    draft = Draft(HYPOTHESIS)
    for step in steps:
        draft = moves[step](draft)
        for head in (FIRST, SECOND, Head(2, 0)):
            does = draft.circuit.heads.get(head)
            said = "intact" if does is None else "paths" if isinstance(does, OneHot) else does.name
            assert draft.state(head) == said
        assert {*draft.circuit.paths} <= {*HYPOTHESIS.paths} | {
            AttentionPath(head, "*", "previous") for head in draft.set_aside
        }
        assert draft.hypothesis == HYPOTHESIS
    for head in [*draft.set_aside]:
        draft = draft.made(head, Draft(HYPOTHESIS).state(head))
    for path in [*draft.removed]:
        draft = draft.toggled(path)
    assert draft == Draft(HYPOTHESIS)


@pytest.fixture
def exploration(model, task, circuit):
    return Exploration(model, task, circuit)


def test_the_losses_are_those_of_the_engine(exploration, model, task, circuit):
    examples = task.examples(EXACTLY, 0)
    few = examples.take(slice(0, AT_ONCE))
    path = next(path for path in circuit.paths if path.source == "query")
    exploration.toggle(path)
    for exactly, some in ((False, few), (True, examples)):
        expected = evaluate(model, task, some, [circuit.without(path), Circuit()])
        assert exploration.loss(exactly).mean == pytest.approx(expected[0].mean().item())
        assert exploration.unablated(exactly).mean == pytest.approx(expected[1].mean().item(), abs=1e-7)
        assert exploration.loss(exactly).n_examples == len(some)


def test_undo_redo_and_reset_go_through_the_past(exploration, circuit):
    path = circuit.paths[-1]
    exploration.undo()
    assert exploration.draft.circuit == circuit
    exploration.toggle(path)
    exploration.cycle(FIRST)
    exploration.undo()
    assert exploration.draft.circuit == circuit.without(path)
    exploration.redo()
    exploration.redo()
    assert exploration.draft.state(FIRST) == "intact"
    exploration.reset()
    assert exploration.draft.circuit == circuit
    exploration.undo()
    exploration.undo()
    exploration.cycle(SECOND)  # forgets what came after
    exploration.redo()
    assert exploration.draft.state(FIRST) != "intact"


def test_the_paths_that_are_needed_are_told_from_those_that_are_not(exploration):
    exploration.draw(FIRST, "query", "pair1.first")
    found = exploration.minimal()
    assert found[FETCH].needed == "directly"
    assert found[AttentionPath(FIRST, "query", "pair1.first")].needed == "no"


def test_a_path_that_cannot_be_is_refused_and_changes_nothing(exploration, circuit):
    for head, source, target in (
        (SECOND, "pair1.first", "query"),
        (Head(7, 0), "query", "pair1.first"),
        (SECOND, "a", "b"),
    ):
        with pytest.raises(BadInput):
            exploration.draw(head, source, target)
    assert exploration.draft.circuit == circuit


def test_what_is_saved_is_what_stands_there(exploration, circuit, tmp_path):
    path = circuit.paths[-1]
    exploration.toggle(path)
    exploration.save(tmp_path / "mine.yaml")
    assert load_circuit(tmp_path / "mine.yaml") == circuit.without(path)


@pytest.mark.slow
def test_the_report_is_of_the_circuit_as_it_stands(exploration, circuit, tmp_path):
    exploration.toggle(circuit.paths[-1])
    page = exploration.report(tmp_path)
    assert page.is_file()
    assert '"passed": false' in (tmp_path / "report.json").read_text()


@pytest.fixture
def explorer(model, task, circuit):
    return explore(model, task, circuit)


def click(explorer, path):
    explorer.diagram._handle_custom_msg(f"path {path}", [])


def test_the_line_says_on_how_many_examples_each_loss_was_measured(explorer, circuit):
    assert explorer.said.count(f"on {AT_ONCE} examples") == 2
    explorer.buttons["exact"].click()
    assert explorer.said.count("on 1,024 examples") == 2
    click(explorer, circuit.paths[1])
    assert explorer.said.count(f"on {AT_ONCE} examples") == 2
    names = [f"{name}, {AT_ONCE} examples" for name in ("unablated", "with the circuit")]
    assert [trace.name for trace in explorer.losses.data] == names


def test_what_is_clicked_is_drawn_otherwise_and_undone(explorer, circuit):
    before = explorer.diagram.svg
    click(explorer, circuit.paths[1])
    assert explorer.diagram.svg.count('aria-pressed="false"') == 1
    assert "stroke-dasharray" in explorer.diagram.svg
    explorer.buttons["undo"].click()
    assert explorer.diagram.svg == before
    explorer.diagram._handle_custom_msg("head L0H0", [])
    assert "L0H0 intact" in explorer.diagram.svg
    assert explorer.head.value == "L0H0"


def test_a_click_on_a_path_tells_by_which_senders_its_head_finds_its_place(explorer, circuit):
    click(explorer, circuit.paths[1])
    assert "L1H0 query -> pair1.second finds its place by embed at query (Q: " in explorer.said
    assert explorer.diagram.svg.count('class="edge"') == 3
    assert "L0H0 (K)" in explorer.diagram.svg
    explorer.head.value = "L0H0"
    assert "L0H0 pair1.second -> pair1.first finds its place" in explorer.said
    assert "L0H0 (K)" not in explorer.diagram.svg
    assert explorer.bar.layout.visibility == "hidden"


def test_edges_are_measured_once_for_each_head_and_only_then_the_line_says_so(explorer, circuit, monkeypatch):
    said = []
    monkeypatch.setattr(explorer, "_say", lambda text, wrong=False: said.append(text))
    for _ in range(2):
        click(explorer, circuit.paths[1])
    assert sum("on 64 examples …" in text for text in said) == 1
    assert sum("finds its place" in text for text in said) == 2


def test_a_model_whose_edges_cannot_be_measured_is_explored_all_the_same(explorer, circuit, monkeypatch):
    def refuse(*_):
        raise BadInput("not like GPT-2")

    monkeypatch.setattr(explorer.exploration, "edges", refuse)
    click(explorer, circuit.paths[1])
    assert "The edges of L1H0 cannot be measured: not like GPT-2" in explorer.said
    assert explorer.diagram.svg.count('aria-pressed="false"') == 1


def test_all_arrows_of_a_previous_head_are_one_thing_to_click(explorer):
    for _ in range(4):  # intact, uniform, identity, previous
        explorer.diagram._handle_custom_msg("head L1H0", [])
    svg = explorer.diagram.svg
    assert svg.count('data-act="path L1H0 * -&gt; previous"') == 1
    group = svg.split('data-act="path L1H0 * -&gt; previous"')[1].split("</g>")[0]
    assert group.count("<polygon") == 1  # of one pair
    click(explorer, "L1H0 * -> previous")
    assert "L1H0 uniform" in explorer.diagram.svg


def test_a_loss_that_cannot_be_measured_is_said_and_the_one_before_is_not_shown_any_more(
    explorer, circuit, monkeypatch
):
    def fails(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(explorer.exploration._at_once, "measure", fails)
        click(explorer, circuit.paths[1])
        assert explorer.said == "RuntimeError: out of memory"
        assert "Not done." in explorer.line.value
        assert [len(trace.y) for trace in explorer.losses.data] == [0, 0]
    explorer.buttons["undo"].click()
    assert "The circuit's loss is" in explorer.said
    assert [len(trace.y) for trace in explorer.losses.data] == [2, 2]


def test_what_is_no_circuit_is_not_lost_by_saving_one(explorer, circuit, tmp_path):
    mine = tmp_path / "notes.yaml"
    mine.write_text("mine: [1, 2]\n")
    explorer.file.value = str(mine)
    explorer.buttons["save"].click()
    assert f"{mine} exists and is not a circuit" in explorer.said
    assert mine.read_text() == "mine: [1, 2]\n"
    explorer.file.value = str(tmp_path / "circuit.yaml")
    explorer.buttons["save"].click()
    assert explorer.said.endswith("circuit.yaml.")
    explorer.buttons["save"].click()
    assert explorer.said.endswith("circuit.yaml; the earlier circuit is overwritten.")
    assert load_circuit(tmp_path / "circuit.yaml").paths == circuit.paths


def test_what_cannot_be_done_is_said_and_changes_nothing(explorer, circuit):
    explorer.head.value, explorer.source.value, explorer.target.value = "L1H0", "pair1.first", "query"
    explorer.buttons["draw"].click()
    assert "is against the causal mask" in explorer.said
    assert "Not done." in explorer.line.value
    assert explorer.exploration.draft.circuit == circuit


def test_what_gives_way_to_a_path_that_is_drawn_and_what_comes_back_is_said(explorer):
    explorer.head.value, explorer.source.value, explorer.target.value = "L1H0", "query", "pair1.first"
    explorer.buttons["draw"].click()
    assert explorer.said.startswith("L1H0 query -> pair1.second was removed. The circuit's loss is ")
    explorer.diagram._handle_custom_msg("head L1H0", [])
    explorer.source.value, explorer.target.value = "pair1.second", "pair1.first"
    explorer.buttons["draw"].click()
    assert explorer.said.startswith("L1H0 query -> pair1.first was put back. The circuit's loss is ")


@pytest.mark.parametrize("name", ["", " ", ".", "..", "/", "a\0b"])
@pytest.mark.parametrize("button", ["save", "report"])
def test_a_name_that_is_no_file_is_refused_in_words(explorer, button, name):
    explorer.file.value = name
    explorer.buttons[button].click()
    assert "is not the name of a file" in explorer.said
    assert "Not done." in explorer.line.value


def test_what_nobody_expected_is_said_too(explorer):
    def fails() -> None:
        raise ZeroDivisionError("by accident")

    explorer._do(fails)
    assert explorer.said == "ZeroDivisionError: by accident"


def test_where_the_circuit_fails_no_path_is_called_undecided_without_a_reason(explorer, circuit):
    click(explorer, circuit.paths[1])
    explorer.buttons["minimal?"].click()
    assert "at the threshold 0.05: the loss of the circuit is not below it" in explorer.said


def test_what_was_said_of_a_circuit_is_not_said_of_one_that_was_changed(model, task, circuit, tmp_path):
    exploration = Exploration(model, task, replace(circuit, description="Found somewhere."))
    exploration.save(tmp_path / "same.yaml")
    assert load_circuit(tmp_path / "same.yaml").description == "Found somewhere."
    exploration.toggle(circuit.paths[0])
    exploration.save(tmp_path / "changed.yaml")
    assert "Changed by hand" in load_circuit(tmp_path / "changed.yaml").description


def test_paths_are_labelled_with_whether_they_are_needed_until_something_changes(explorer, circuit):
    explorer.buttons["minimal?"].click()
    assert "L1H0 query -> pair1.second: needed" in explorer.said
    assert ">needed<" in explorer.diagram.svg
    click(explorer, circuit.paths[0])
    assert ">needed<" not in explorer.diagram.svg


def test_a_click_on_an_arrow_that_is_gone_says_so_and_changes_nothing(explorer, circuit):
    before = explorer.exploration.draft
    click(explorer, "L0H0 query -> pair1.second")
    assert explorer.said == "L0H0 query -> pair1.second is not a path of the circuit any more."
    assert explorer.exploration.draft == before


def test_names_of_roles_are_drawn_as_text(model, circuit):
    odd = InductionTask(roles=("query", "<script>alert(1)</script>", "pair1.second"))
    svg = explore(model, odd, Circuit({SECOND: OneHot({"query": "pair1.second"})})).diagram.svg
    assert "<script>" not in svg
    assert "&lt;script&gt;" in svg
