"""The built wheel: what it holds, and that it works where no checkout is."""

import json
import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from retrieval_interp.models.checkpoints import CONFIG
from tests.annotations import ROOT

pytestmark = pytest.mark.slow
EXAMPLES = 32  # of the 1,024 of the demo: the verdict is the same, and what is installed is all used
DEMO = """
from functools import partial
import retrieval_interp.__main__ as started
from retrieval_interp.cli import circuits

assert "environment" in started.__file__
circuits.validate = partial(circuits.validate, examples=examples)
started.main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def test_the_wheel_holds_every_trained_model_and_neither_logs_of_sweeps_nor_results_of_benchmarks(wheel: Path) -> None:
    names = {name.removeprefix("retrieval_interp/") for name in zipfile.ZipFile(wheel).namelist()}
    held = {name for name in names if name.startswith("data/")}
    parts = (CONFIG, "model.safetensors", "circuit.yaml", "circuit.patterns.safetensors", "report.json")
    own = {str(path.relative_to(ROOT)) for part in parts for path in (ROOT / "data").glob(f"*/{part}")}
    assert len([name for name in own if name.endswith(CONFIG)]) >= 10
    assert own <= held
    assert not [name for name in held if name.startswith("data/sweeps") and not name.endswith(".csv")]
    assert not [name for name in held if name.count("/") == 1]


def test_installed_into_an_empty_environment_the_demo_holds_and_writes_its_reports_in_an_empty_folder(
    wheel: Path, tmp_path: Path
) -> None:
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    venv.create(environment)
    empty.mkdir()
    (packages,) = environment.glob("lib/python*/site-packages")
    # The libraries are those of this environment, whose own .pth files, and so the checkout, are not read there.
    (packages / "libraries.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
    program = f"examples = {EXAMPLES}{DEMO}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [environment / "bin" / "python", "-P", "-c", program, "demo"],
        cwd=empty,
        env={**inherited, "OMP_NUM_THREADS": "1"},  # other tests run beside it
        capture_output=True,
        text=True,
    )
    helped = subprocess.run([environment / "bin" / "retrieval-interp", "--help"], cwd=empty, capture_output=True)
    assert helped.returncode == 0
    assert run.returncode in (0, 1), run.stderr
    assert "accounts for the output: holds" in run.stdout
    folder = empty / "reports" / "transformer_a"
    assert {path.name for path in folder.iterdir()} == {
        "report.json",
        "report.md",
        "report.html",
        "circuit.patterns.safetensors",
    }
    assert json.loads((ROOT / "data" / "transformer_a" / "report.json").read_text())["passed"]  # on all examples
    report = json.loads((folder / "report.json").read_text())
    assert report["decision"] in ("holds", "undecided")  # so few examples leave something to chance
    assert run.returncode == (0 if report["passed"] else 1)
    assert report["loss"]["unablated"] < 0.01
    assert report["loss"]["combined"] < 0.05
    assert len(report["heads"]) == 12
    assert report["examples"] == EXAMPLES
    assert report["metadata"]["model"] == "transformer_a"
    assert (folder / "report.md").read_text().startswith(f"# transformer_a: {report['decision']}")
    assert (folder / "report.html").stat().st_size > 10**6
