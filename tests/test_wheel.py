"""The built wheel: what it holds, and that it works where no checkout is."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from retrieval_interp.models.model_dir import CONFIG
from tests.annotations import ROOT

pytestmark = pytest.mark.slow
PROGRAM = """
import sys
from retrieval_interp.models.checkpoints import n_numbers
from retrieval_interp.models.library import find, own_circuit
from retrieval_interp.publishing.card import model_card
folder = find("transformer_a")
assert str(folder).startswith(sys.argv[1]), folder
assert n_numbers(folder / "model.safetensors") > 10**6
assert len(own_circuit(folder).heads) == 12
print(model_card(folder, "transformer_a"))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.iterdir()))


def test_the_wheel_holds_the_packages_the_trained_models_and_the_command(wheel: zipfile.ZipFile) -> None:
    names = {*wheel.namelist()}
    held = {name.removeprefix("retrieval_interp/") for name in names if name.startswith("retrieval_interp/data/")}
    parts = (CONFIG, "model.safetensors", "circuit.yaml", "circuit.patterns.safetensors", "report.json")
    stored = {path for part in parts for path in (ROOT / "data").glob(f"*/{part}")}
    own = {str(path.relative_to(ROOT)) for path in stored if path.parent.name not in ("transformer_b", "transformer_c")}
    assert len([name for name in own if name.endswith(CONFIG)]) >= 8
    assert sum(part.compress_size for part in wheel.infolist()) < 15e6
    assert own <= held
    assert not [name for name in held if name.startswith("data/sweeps") and not name.endswith(".csv")]
    assert not [name for name in held if name.count("/") == 1]
    files = (path for package in ("circuits", "retrieval_interp") for path in (ROOT / package).rglob("*.*"))
    assert {str(path.relative_to(ROOT)) for path in files if path.is_file() and path.suffix != ".pyc"} <= names
    (scripts,) = (wheel.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert "retrieval-interp = retrieval_interp.__main__:main" in scripts


def test_unpacked_where_no_checkout_is_it_finds_its_models_and_templates(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    unpacked, empty = tmp_path / "unpacked", tmp_path / "empty"
    wheel.extractall(unpacked)
    empty.mkdir()
    command = [sys.executable, "-P", "-c", PROGRAM, str(unpacked)]
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    run = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "the circuit **holds**" in run.stdout
