"""Mechanisms that somebody else writes: hashed, saved, loaded, evaluated and drawn like ours."""

from dataclasses import dataclass

import pytest
import torch

from circuits import (
    Circuit,
    Head,
    Mechanism,
    evaluate,
    load_circuit,
    path_patching,
    register,
    run_ablated,
    save_circuit,
    validate,
)
from circuits.circuit import AttentionPath
from circuits.circuit_file import parse_circuit
from circuits.explorer.draft import Draft
from circuits.figures.diagram import circuit_diagram, state_of
from circuits.flow.flow_check import flow_check
from circuits.mechanisms import Identity
from tests.handmade import induction_circuit
from tests.refusals import assert_refused


@register
@dataclass(frozen=True)
class Window(Mechanism):
    """Attend equally to the last few positions."""

    width: int
    weights: tuple[float, ...] = ()
    name = "window"

    def pattern(self, roles, n_positions):
        seen = torch.ones(n_positions, n_positions).tril().triu(1 - self.width)
        return (seen / seen.sum(dim=-1, keepdim=True))[None]


@register
class Bare(Mechanism):
    """The induction head's second step, as a mechanism without parameters that claims its path."""

    name = "bare"
    paths = (("query", "pair1.second"),)

    def __eq__(self, other):
        return isinstance(other, Bare)

    def __hash__(self):
        return hash("bare")

    def pattern(self, roles, n_positions):
        return induction_circuit().heads[Head(1, 0)].pattern(roles, n_positions)


@dataclass(frozen=True)
class Wrong(Mechanism):
    """A pattern that is none."""

    how: str
    name = "wrong"

    def pattern(self, roles, n_positions):
        eye = torch.eye(n_positions)
        wrong = {"shape": eye, "later": eye.flip(1)[None], "negative": -eye[None], "much": 2 * eye[None]}
        return {**wrong, "array": eye[None].numpy()}[self.how]


@register
@dataclass(frozen=True)
class Refusing(Bare):
    """One that looks at what it is given."""

    width: int
    name = "refusing"

    def __post_init__(self):
        int(self.width)


OWN = Circuit({Head(0, 0): Window(2, (0.5, 1.0)), Head(1, 0): Bare()}, name="own")


def test_a_circuit_with_mechanisms_of_ones_own_is_read_back_equal(tmp_path):
    save_circuit(OWN, tmp_path / "circuit.yaml")
    again = load_circuit(tmp_path / "circuit.yaml")
    assert again == OWN
    assert again.digest == OWN.digest != OWN.with_head(Head(0, 0), Window(3)).digest
    assert "L1H0: bare" in (tmp_path / "circuit.yaml").read_text()


def test_their_paths_are_validated_and_drawn(model, task):
    circuit = induction_circuit().with_head(Head(1, 0), Bare())
    report = validate(model, task, circuit, n_examples=128)
    assert report.decision == "holds"
    assert AttentionPath(Head(1, 0), "query", "pair1.second") in {part.path for part in report.parts}
    assert report.carries.flow is flow_check(induction_circuit(), task) is None
    assert path_patching(model, task, circuit, n_examples=8) == path_patching(
        model, task, induction_circuit(), n_examples=8
    )
    assert circuit_diagram(circuit, task.examples(8, seed=0).roles).svg.count("<polygon") == 2


def test_in_the_explorer_a_head_goes_round_and_comes_back_to_them():
    draft = Draft(OWN, OWN)
    seen = []
    for _ in range(5):
        draft = draft.cycled(Head(0, 0))
        seen.append(state_of(draft.circuit.heads.get(Head(0, 0))))
    assert seen == ["intact", "uniform", "identity", "previous", "window"]
    assert draft.circuit == OWN


def test_an_installed_package_offers_some(tmp_path, monkeypatch):
    info = tmp_path / "offering-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[circuits.mechanisms]\noffered = offering:Offered\n")
    (tmp_path / "offering.py").write_text(
        "from circuits.mechanisms import Identity\n\nclass Offered(Identity):\n    name = 'offered'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert str(parse_circuit("heads:\n  L0H0: offered\n").heads[Head(0, 0)]) == "offered"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("L0H0: windows", "line 2: L0H0 is 'windows'; expected .* or a registered mechanism"),
        ("L0H0: {mechanism: window}", "line 2: L0H0 is not a valid window: .*width"),
        ("L0H0: {mechanism: window, height: 3}", "height"),
        ("L0H0: {mechanism: refusing, width: abc}", "line 2: L0H0 is not a valid refusing: .*abc"),
        ("L0H0: {mechanism: window, width: }", "width is a NoneType"),
        ("L0H0: {mechanism: window, width: 2020-01-01}", "width is a date"),
        ("L0H0: {mechanism: window, width: !!python/name:os.system }", "unexpected tag"),
    ],
)
def test_what_is_no_such_mechanism_is_refused_with_its_line(text, message):
    assert_refused(message, parse_circuit, f"heads:\n  {text}\n")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shape", "expected .1 or 4, 10, 10"),
        ("array", "gives a ndarray"),
        ("nothing", "gives no pattern"),
        ("later", "causal"),
        ("negative", "not a weight"),
        ("much", "more than 1"),
    ],
)
def test_a_pattern_that_is_none_is_refused_before_it_is_used(model, task, how, message):
    examples, circuit = task.examples(4, 0), Circuit({Head(0, 0): Wrong(how)})
    assert_refused(message, evaluate, model, task, examples, [circuit])
    assert_refused(message, run_ablated, model, circuit, examples)


def test_what_cannot_be_known_by_its_name_is_not_registered(tmp_path):
    assert_refused("'uniform'", register, type("Mine", (Window,), {"name": "uniform"}))
    assert_refused("two mechanisms are called 'window'", register, type("Other", (Window,), {}))
    loose = dataclass(type("Loose", (Mechanism,), {"name": "loose", "pattern": Window.pattern}))
    assert_refused("frozen=True", register, loose)
    assert_refused("expected lower-case letters", register, type("Nameless", (Mechanism,), {}))
    assert_refused("to be registered", save_circuit, Circuit({Head(0, 0): Wrong("shape")}), tmp_path / "circuit.yaml")
    mine = Circuit({Head(0, 0): type("Mine", (Identity,), {})()})
    assert_refused("built-in name", getattr, mine, "digest")  # else it would be taken for Identity
    assert register(Window) is Window  # a cell that is run again
