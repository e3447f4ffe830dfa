"""The notebooks: that they run, and that what is kept beside each source was made from it."""

import os

import jupytext
import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

from notebooks.build import HERE, read

SOURCES = sorted(HERE.glob("[0-9]*.py"))
# Small models show as well that a cell runs; the notebooks that are kept were made without these changes.
FEWER = {
    "1_first_circuit": {"transformer_a": "induction", "layer=4": "layer=1", '"pattern", 5': '"pattern", 1'},
    "2_your_own_model": {"STEPS = 400": "STEPS = 20", "discover(model, task)": "discover(model, task, threshold=0.9)"},
    "3_the_paper": {'"steps": 500, "b': '"steps": 100, "b', "examples(512": "examples(64"},
    "4_a_pretrained_model": {},
}
EACH = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def kernel():
    """One kernel for all notebooks: to start one and to import the libraries takes longer than to run most of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(os.environ, "JUPYTER_PLATFORM_DIRS", "1")
        patched.setitem(os.environ, "OMP_NUM_THREADS", "1")  # other tests run beside it
        manager = KernelManager()
        manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.slow
@EACH
def test_the_notebook_runs_from_top_to_bottom(source, tmp_path, kernel):
    notebook = read(source)
    forget = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")
    for much, little in FEWER[source.stem].items():
        (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and much in cell.source)
        cell.source = cell.source.replace(much, little)
    notebook.cells.insert(0, forget)
    NotebookClient(notebook, km=kernel, timeout=None).execute()


@EACH
def test_the_kept_notebook_is_its_source_with_outputs(source):
    kept = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    assert jupytext.writes(kept, fmt="py:percent") == jupytext.writes(read(source), fmt="py:percent")
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell.outputs) for cell in code) > len(code) / 2
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "image/svg+xml", "image/png", "application/vnd.plotly.v1+json"}


def test_nothing_is_kept_without_its_source():
    assert [source.stem for source in SOURCES] == [*FEWER]
    assert sorted(HERE.glob("*.ipynb")) == [source.with_suffix(".ipynb") for source in SOURCES]
