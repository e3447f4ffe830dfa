from dataclasses import replace

import pytest

from circuits import Circuit, Head, OneHot, evaluate, load_circuit
from circuits.circuit import AttentionPath
from circuits.explorer import explore
from circuits.explorer.draft import Draft
from circuits.explorer.explorer import AT_ONCE, EXACTLY
from circuits.figures.diagram import state_of
from circuits.mechanisms import Condition, Identity, Previous, Uniform
from tests.handmade import LENGTH, InductionTask, Told
from tests.refusals import assert_refused

FIRST, SECOND = Head(0, 0), Head(1, 0)
FETCH = AttentionPath(SECOND, "query", "pair1.second")
JOIN = AttentionPath(FIRST, "*", "previous")
CIRCUIT = Circuit({FIRST: Previous(), SECOND: OneHot({"query": "pair1.second"})})
DRAFT = Draft(CIRCUIT, CIRCUIT)


def test_a_path_is_removed_and_put_back():
    assert DRAFT.toggled(FETCH).circuit == CIRCUIT.without(FETCH)
    assert DRAFT.toggled(FETCH).paths == {JOIN: True, FETCH: False}
    assert DRAFT.toggled(FETCH).toggled(FETCH) == DRAFT
    assert DRAFT.toggled(JOIN).circuit.heads[FIRST] == Uniform()
    assert DRAFT.toggled(JOIN).toggled(JOIN) == DRAFT


def test_a_path_with_its_condition_is_put_back_alone():
    where = {("query", "pair1.second"): Condition("position", "query", (7, 8))}
    head = OneHot({"query": "pair1.second", "pair1.second": "pair1.first"}, where=where)
    draft = Draft(Circuit({SECOND: head}), Circuit({SECOND: Uniform()}))
    both = draft.toggled(FETCH).toggled(AttentionPath(SECOND, "pair1.second", "pair1.first"))
    assert [*draft.toggled(FETCH).circuit.paths] == [FETCH]
    assert both.circuit == draft.drawn


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (FIRST, [("intact", None), ("uniform", Uniform()), ("identity", Identity()), ("previous", Previous())]),
        (Head(5, 0), [("uniform", Uniform()), ("identity", Identity()), ("previous", Previous()), ("intact", None)]),
        (SECOND, [("intact", None), ("uniform", Uniform()), ("identity", Identity()), ("previous", Previous()),
                  ("paths", OneHot({"query": "pair1.second"}))]),
    ],
)  # fmt: skip
def test_a_head_goes_through_all_states_and_comes_back_to_its_paths(head, expected):
    draft, seen = DRAFT, []
    for _ in expected:
        draft = draft.cycled(head)
        seen.append((state_of(draft.circuit.heads.get(head)), draft.circuit.heads.get(head)))
    assert seen == expected
    assert draft == DRAFT


def test_a_head_that_is_made_previous_has_a_path_which_can_be_removed():
    previous = Draft(CIRCUIT, CIRCUIT.with_head(SECOND, Previous()))
    before = AttentionPath(SECOND, "*", "previous")
    assert previous.paths == {JOIN: True, FETCH: False, before: True}
    assert previous.toggled(before).circuit == CIRCUIT.with_head(SECOND, Uniform())
    assert_refused(r"the circuit has no path L1H0 \* -> previous", DRAFT.toggled, before)


def test_a_path_that_is_drawn_replaces_the_path_from_the_same_role():
    draft = DRAFT.with_path(AttentionPath(SECOND, "query", "pair1.first"))
    assert draft.circuit.heads[SECOND] == OneHot({"query": "pair1.first"})
    more = DRAFT.with_path(AttentionPath(SECOND, "pair1.second", "pair1.first"))
    assert more.circuit.heads[SECOND] == OneHot({"query": "pair1.second", "pair1.second": "pair1.first"})
    assert Draft(Circuit(), Circuit()).with_path(FETCH).circuit == Circuit({SECOND: OneHot({"query": "pair1.second"})})


@pytest.fixture
def explorer(model, task, circuit):
    return explore(model, task, circuit)


def click(explorer, act):
    explorer.diagram._handle_custom_msg(act if isinstance(act, str) else f"path {act}", [])


def test_a_click_shows_the_losses_of_the_engine_on_few_examples_and_on_all(explorer, model, task, circuit):
    examples = task.examples(EXACTLY, 0)
    click(explorer, FETCH)
    for some, button in ((examples.take(slice(0, AT_ONCE)), None), (examples, "exact")):
        if button:
            explorer.buttons[button].click()
        without, intact = (
            losses.mean().item() for losses in evaluate(model, task, some, [circuit.without(FETCH), Circuit()])
        )
        assert f"loss is {without:.4f} ±" in explorer.said
        assert f"on {len(some):,} examples" in explorer.said
        assert f"Loss on {len(some):,} examples" in explorer.losses.value
        assert f">{intact:.4f}<" in explorer.losses.value
        assert f">{without:.4f}<" in explorer.losses.value
    click(explorer, FETCH)
    assert f"on {AT_ONCE} examples" in explorer.said


def test_what_is_clicked_is_drawn_and_undone(explorer, circuit):
    before = explorer.diagram.svg
    click(explorer, FETCH)
    assert explorer.diagram.svg.count('aria-pressed="false"') == 1
    assert "stroke-dasharray" in explorer.diagram.svg
    click(explorer, "head L0H0")
    assert "L0H0 intact" in explorer.diagram.svg
    assert explorer.head.value == "L0H0"
    explorer.buttons["undo"].click()
    assert explorer.draft.circuit == circuit.without(FETCH)
    explorer.buttons["reset"].click()
    assert explorer.draft.circuit == circuit
    for _ in range(4):
        explorer.buttons["undo"].click()
    explorer.head.value = "L1H0"
    assert explorer.diagram.svg == before


def test_paths_are_labelled_with_whether_they_are_needed_until_something_changes(explorer, circuit):
    explorer.head.value, explorer.source.value, explorer.target.value = "L0H0", "query", "pair1.first"
    explorer.buttons["draw"].click()
    explorer.buttons["minimal?"].click()
    assert "L1H0 query -> pair1.second: needed" in explorer.said
    assert "L0H0 query -> pair1.first: not needed" in explorer.said
    assert ">L1H0 needed<" in explorer.diagram.svg
    click(explorer, circuit.paths[0])
    assert ">L1H0 needed<" not in explorer.diagram.svg


def test_the_chosen_example_is_shown_as_a_sequence_with_the_answers_of_the_model(model, circuit):
    explorer, task = explore(model, Told(), circuit), Told()
    explorer.example.value = 5
    one = task.examples(EXACTLY, 0).take(slice(5, 6))
    for token in one.inputs[0].tolist():
        assert f">{token}</span>" in explorer.sequence.value
    for place in one.roles["query"][0]:
        asked, answer = one.inputs[0, place], one.targets[0, place - (LENGTH - one.targets.shape[1])]
        assert f"answer at {asked} (logit): x1 <b>{answer}</b> ✓" in explorer.sequence.value


def refused(explorer, circuit, text):
    return text in explorer.said and "Not done." in explorer.line.value and explorer.draft.circuit == circuit


def test_what_cannot_be_done_is_said_and_changes_nothing(explorer, circuit, monkeypatch):
    click(explorer, "path L0H0 query -> pair1.second")
    assert refused(explorer, circuit, "the circuit has no path")
    explorer.head.value, explorer.source.value, explorer.target.value = "L1H0", "pair1.first", "query"
    explorer.buttons["draw"].click()
    assert refused(explorer, circuit, "is against the causal mask")

    def fails(*_):
        raise RuntimeError("out of memory")

    svg = explorer.diagram.svg
    monkeypatch.setattr(explorer._test, "measure", fails)
    click(explorer, FETCH)
    assert refused(explorer, circuit, "RuntimeError: out of memory")
    assert explorer.diagram.svg == svg


def test_what_is_saved_is_the_circuit_as_it_is_now(model, task, circuit, tmp_path):
    explorer = explore(model, task, replace(circuit, description="Seen somewhere."))
    explorer.file.value = str(tmp_path / "circuit.yaml")
    explorer.buttons["save"].click()
    assert load_circuit(tmp_path / "circuit.yaml").description == "Seen somewhere."
    click(explorer, FETCH)
    explorer.buttons["save"].click()
    assert load_circuit(tmp_path / "circuit.yaml") == circuit.without(FETCH)
    assert "Changed by hand" in load_circuit(tmp_path / "circuit.yaml").description


@pytest.mark.parametrize("name", ["", "..", "/", "a\0b", "new/circuit.yaml", "notes.yaml"])
def test_what_is_no_file_or_no_circuit_is_not_written(explorer, circuit, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.yaml").write_text("mine: [1, 2]\n")
    explorer.file.value = name
    explorer.buttons["save"].click()
    assert refused(explorer, circuit, "is not a circuit" if name == "notes.yaml" else "is not the name of a file")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine: [1, 2]\n"]


def test_roles_and_conditions_are_drawn_as_text(model):
    odd = InductionTask(roles=("query", "<script>alert(1)</script>", "pair1.second"))
    where = {("query", "pair1.second"): Condition("position", "query", (7, 8))}
    explorer = explore(model, odd, Circuit({SECOND: OneHot({"query": "pair1.second"}, where=where)}))
    assert "<script>" not in explorer.diagram.svg
    assert "&lt;script&gt;" in explorer.diagram.svg
    assert ">L1H0 position 7, 8 of query</text>" in explorer.diagram.svg
    assert "<svg" in explorer._repr_mimebundle_()["image/svg+xml"]
