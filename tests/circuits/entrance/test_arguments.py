"""Numbers, protocols and metadata are read once, and a wrong one is named in one line."""

import re
import subprocess
import sys
from dataclasses import make_dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from circuits import validate
from circuits.mechanisms.mechanism import Identity, Mechanism
from circuits.mechanisms.registry import register
from tests.circuits.entrance.small import CIRCUIT, ON_MODELS, Copying
from tests.refusals import assert_refused

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n_examples": 64.0}, "number of examples is 64.0"),
        ({"seed": -1}, "seed is -1"),
        ({"threshold": "0.1"}, "threshold is '0.1'"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"circuit": {"L0H0": "uniform"}}, "circuit: got dict; expected Circuit"),
        ({"circuit": Copying().examples(2, 0)}, "circuit: got Examples; expected Circuit"),
    ],
)
def test_arguments_that_cannot_be_used_are_named_in_one_line(model, changed, said):
    assert_refused(said, validate, **{"model": model, "task": Copying(), "circuit": CIRCUIT, **changed})


def test_every_entrance_is_in_the_list_of_entrances():
    of_other_tasks = {"compile_circuit"}
    without_model = {"flow_check", "circuit_diagram"}
    code = "".join(file.read_text() for file in (ROOT / "circuits").rglob("*.py"))
    found = {*re.findall(r"^@entrance\n(?:@.*\n)*def (\w+)", code, re.M)}
    assert found == {*ON_MODELS} | of_other_tasks | without_model


WRONG_TYPES = """
import inspect
import re

import torch
import circuits
from circuits import Circuit, Head, OneHot, Roles
from circuits.errors import plain
from circuits.explorer import explore
from circuits.figures.diagram import circuit_diagram
from circuits.ground_truth import compile_circuit
from tests.circuits.entrance.small import CIRCUIT, Copying, small_model
from tests.refusals import assert_refused

model, task = small_model(), Copying()
wrong = {
    "compile_circuit, a TokenTask": lambda: compile_circuit(CIRCUIT, task),
    "Roles, no whole numbers": lambda: Roles(("a",), torch.zeros(2, 1, 1)),
    "where, the conditions are": lambda: OneHot([("a", "b")], where={("a", "b"): (0, 1)}),
    "elsewhere, elsewhere is 3": lambda: OneHot([("a", "b")], elsewhere=3),
    "layer, a layer is -1": lambda: Head(-1, 0),
    "head, a head is 1000000": lambda: Head(0, 10**6),
    "circuit's name, the name of a circuit is 3": lambda: Circuit({}, 3),
    "text, text that can be saved": lambda: plain("the metadata", {"name": chr(0xD800)}),
    "circuit, got str; expected Circuit": lambda: circuit_diagram("induction", task.examples(2, 0).roles),
    "model, of type Examples; expected a HookedTransformer or a": lambda: explore(task.examples(2, 0), task, CIRCUIT),
    "task, the task, of type Examples, has no loss_components": lambda: explore(model, task.examples(2, 0), CIRCUIT),
    "circuit, got str; expected Circuit": lambda: explore(model, task, "induction"),
    "examples, got Copying; expected Examples": lambda: circuits.attention_viewer(model, task),
    "number, layer is 1.0; expected": lambda: circuits.attention_viewer(model, task.examples(2, 0), layer=1.0),
    "name, got HookedTransformer": lambda: circuits.model.from_pretrained(model),
}
for name, run in wrong.items():
    assert_refused(re.escape(name.split(", ", 1)[1]), run)
for work in (circuits.path_patching, circuits.self_consistency, circuits.validate, circuits.discover):
    for name in ("n_examples", "seed"):
        for value in ("a", 2.5, True, -1, None):
            given = {"circuit": CIRCUIT} if "circuit" in inspect.signature(work).parameters else {}
            line = assert_refused("expected", work, model, task, **given, **{name: value})
            assert repr(value) in line, f"{work.__name__}, {name}={value!r}: {line}"
"""


def test_arguments_of_a_wrong_type_are_named_in_one_line():
    # in another process, where annotations are not checked
    run = subprocess.run([sys.executable, "-c", WRONG_TYPES], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_a_protocol_and_metadata_that_cannot_be_used_are_named(model):
    report = validate(model, Copying(), CIRCUIT, n_examples=32)
    assert_refused("'Paper'; expected extended or paper", report.by, "Paper")
    assert_refused("the metadata, model", report.about, {"model": object()})


def test_a_mechanism_with_a_field_that_files_use_is_refused():
    own = {"name": "wrong_field", "pattern": Identity.pattern}
    wrong = make_dataclass("Wrong", [("mechanism", str)], bases=(Mechanism,), namespace=own, frozen=True)
    assert_refused("a field called mechanism", register, wrong)


def test_numbers_of_any_library_are_taken_as_pythons(model):
    settings = {"n_examples": np.int64(32), "seed": torch.tensor(1), "threshold": np.float32(0.5)}
    metadata = {"seed": np.int64(3), "rate": torch.tensor(0.5), "heads": (np.int32(1), 2)}
    report = validate(model, Copying(), CIRCUIT, **settings).about(metadata)
    assert report.combined == validate(model, Copying(), CIRCUIT, n_examples=32, seed=1, threshold=0.5).combined
    assert report.metadata == {"seed": 3, "rate": 0.5, "heads": [1, 2]}
