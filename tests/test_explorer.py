import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import BadInput, Circuit, Head, Identity, OneHot, Previous, Uniform, evaluate, load_circuit
from circuits.circuit import Path
from circuits.explorer import explore
from circuits.explorer.draft import Draft
from circuits.explorer.exploration import AT_ONCE, EXACTLY, Exploration
from tests.handmade import InductionProblem

FIRST, SECOND = Head(0, 0), Head(1, 0)
FETCH = Path(SECOND, "query", "pair1.second")
JOIN = Path(FIRST, "*", "previous")
HYPOTHESIS = Circuit({FIRST: Previous(), SECOND: OneHot({"query": "pair1.second"})})


def test_a_path_is_taken_away_and_put_back():
    without = Draft(HYPOTHESIS).toggled(FETCH)
    assert without.circuit == HYPOTHESIS.without(FETCH)
    assert without.toggled(FETCH).circuit == HYPOTHESIS
    assert Draft(HYPOTHESIS).toggled(JOIN).circuit.heads[FIRST] == Uniform()


def test_a_head_goes_round_all_that_it_can_be_made_to_do():
    draft, seen = Draft(HYPOTHESIS), []
    for _ in range(5):
        draft = draft.next(SECOND)
        seen.append((draft.state(SECOND), draft.circuit.heads.get(SECOND)))
    assert seen == [
        ("untouched", None),
        ("uniform", Uniform()),
        ("identity", Identity()),
        ("previous", Previous()),
        ("paths", OneHot({"query": "pair1.second"})),
    ]
    assert draft == Draft(HYPOTHESIS)


def test_a_head_without_paths_of_its_own_has_none_to_go_back_to():
    assert Draft(HYPOTHESIS).states(FIRST) == ("uniform", "identity", "previous", "untouched")
    assert Draft(HYPOTHESIS).state(Head(5, 0)) == "untouched"


def test_paths_outlast_that_their_head_is_set_aside():
    draft = Draft(HYPOTHESIS).made(SECOND, "identity")
    assert not draft.there(FETCH)
    assert draft.toggled(FETCH).circuit == HYPOTHESIS


def test_a_path_that_is_drawn_takes_the_place_of_the_one_from_the_same_role():
    draft = Draft(HYPOTHESIS).toggled(FETCH).drawn(Path(SECOND, "query", "pair1.first"))
    assert draft.circuit.heads[SECOND] == OneHot({"query": "pair1.first"})
    more = Draft(HYPOTHESIS).drawn(Path(SECOND, "pair1.second", "pair1.first"))
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
        assert {*draft.circuit.paths} <= {*HYPOTHESIS.paths} | {Path(head, "*", "previous") for head in draft.set_aside}
        assert draft.hypothesis == HYPOTHESIS
    for head in [*draft.set_aside]:
        draft = draft.made(head, Draft(HYPOTHESIS).state(head))
    for path in [*draft.removed]:
        draft = draft.toggled(path)
    assert draft == Draft(HYPOTHESIS)


@pytest.fixture
def exploration(model, problem, circuit):
    return Exploration(model, problem, circuit)


def test_the_losses_are_those_of_the_engine(exploration, model, problem, circuit):
    examples = problem.examples(EXACTLY, 0)
    few = examples.take(slice(0, AT_ONCE))
    path = next(path for path in circuit.paths if path.source == "query")
    exploration.toggle(path)
    for exactly, some in ((False, few), (True, examples)):
        expected = evaluate(model, problem, some, [circuit.without(path), Circuit()])
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
    assert exploration.draft.state(FIRST) == "untouched"
    exploration.reset()
    assert exploration.draft.circuit == circuit
    exploration.undo()
    exploration.undo()
    exploration.cycle(SECOND)  # forgets what came after
    exploration.redo()
    assert exploration.draft.state(FIRST) != "untouched"


def test_the_paths_that_are_needed_are_told_from_those_that_are_not(exploration):
    exploration.draw(FIRST, "query", "pair1.first")
    found = exploration.minimal()
    assert found[FETCH].needed == "directly"
    assert found[Path(FIRST, "query", "pair1.first")].needed == "no"


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


def test_the_report_is_of_the_circuit_as_it_stands(exploration, circuit, tmp_path):
    exploration.toggle(circuit.paths[-1])
    page = exploration.report(tmp_path)
    assert page.is_file()
    assert '"passed": false' in (tmp_path / "report.json").read_text()


@pytest.fixture
def explorer(model, problem, circuit):
    return explore(model, problem, circuit)


def test_the_line_says_on_how_many_examples_each_loss_was_measured(explorer):
    assert explorer.said.count(f"on {AT_ONCE} examples") == 2
    explorer.buttons["exact"].click()
    assert explorer.said.count("on 1,024 examples") == 2
    explorer.diagram._handle_custom_msg("path 1", [])
    assert f"on {AT_ONCE} examples, the model's own" in explorer.said
    assert explorer.said.endswith("on 1,024 examples.")
    assert [trace.name for trace in explorer.losses.data] == [
        "unablated, 1,024 examples",
        f"with the circuit, {AT_ONCE} examples",
    ]


def test_what_is_clicked_is_drawn_otherwise_and_undone(explorer):
    before = explorer.diagram.svg
    explorer.diagram._handle_custom_msg("path 1", [])
    assert explorer.diagram.svg.count('aria-pressed="false"') == 1
    assert "stroke-dasharray" in explorer.diagram.svg
    explorer.buttons["undo"].click()
    assert explorer.diagram.svg == before
    explorer.diagram._handle_custom_msg("head L0H0", [])
    assert "L0H0 untouched" in explorer.diagram.svg
    assert explorer.head.value == "L0H0"


def test_what_cannot_be_done_is_said_and_changes_nothing(explorer, circuit):
    explorer.head.value, explorer.source.value, explorer.target.value = "L1H0", "pair1.first", "query"
    explorer.buttons["draw"].click()
    assert "is against the causal mask" in explorer.said
    assert "Not done." in explorer.line.value
    assert explorer.exploration.draft.circuit == circuit


def test_paths_are_labelled_with_whether_they_are_needed_until_something_changes(explorer):
    explorer.buttons["minimal?"].click()
    assert "L1H0 query -> pair1.second: needed" in explorer.said
    assert ">needed<" in explorer.diagram.svg
    explorer.diagram._handle_custom_msg("path 0", [])
    assert ">needed<" not in explorer.diagram.svg


def test_names_of_roles_are_drawn_as_text(model, circuit):
    odd = InductionProblem(roles=("query", "<script>alert(1)</script>", "pair1.second"))
    svg = explore(model, odd, Circuit({SECOND: OneHot({"query": "pair1.second"})})).diagram.svg
    assert "<script>" not in svg
    assert "&lt;script&gt;" in svg
