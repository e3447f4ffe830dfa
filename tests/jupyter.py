"""JupyterLab and Notebook 7 on the loopback address, in a headless Chromium that remembers what was asked for."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Page, sync_playwright

from tests.browser import SILENT, chromium
from tests.listening import listening

HERE = re.compile(r"((http|ws)s?://127\.0\.0\.1[:/]|data:|blob:)")
FRONT_ENDS = {"lab": "lab/tree", "notebook": "notebooks"}  # where they show a notebook
OWN = "Cannot read properties of undefined (reading 'schema')"  # Notebook 7.6 says so of any notebook, also of print(1)
IDLE = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
PATIENCE = 60_000  # milliseconds until a cell has run


@contextmanager
def notebook(folder: Path, *cells: str, front_end: str = "lab") -> Iterator[tuple[Page, list[str]]]:
    """A notebook of these cells, which run, and the complaints: console errors, exceptions, requests elsewhere."""
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(document, folder / "explored.ipynb")
    with _lab(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(SILENT))
        page = browser.new_context(viewport={"width": 1400, "height": 1500}).new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)) if str(error) != OWN else None)
        page.route(lambda url: not HERE.match(url), lambda route: (complaints.append(route.request.url), route.abort()))
        page.goto(f"{address}/{FRONT_ENDS[front_end]}/explored.ipynb")
        page.wait_for_function(IDLE, timeout=PATIENCE)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        try:
            yield page, complaints
        finally:
            browser.close()


@contextmanager
def _lab(folder: Path) -> Iterator[str]:
    """A server that ends with the test; its address."""
    own = {name: str(folder / "jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    log = folder / "lab.log"
    options = (
        *("--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--expose-app-in-browser"),
        "--JupyterNotebookApp.expose_app_in_browser=True",
        *("--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--LabApp.news_url="),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    )
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env={**os.environ, **own, "JUPYTER_PLATFORM_DIRS": "1", "OMP_NUM_THREADS": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(240):
            if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
                yield found[0]
                assert listening(server.pid) == {"127.0.0.1"}  # the kernels too
                return
            if server.poll() is not None:
                break
            time.sleep(0.25)
        raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-2000:]}")
    finally:
        server.terminate()
        server.wait(timeout=60)
