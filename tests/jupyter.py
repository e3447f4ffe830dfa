"""JupyterLab on the loopback address, in a headless Chromium that remembers what was asked for."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import nbformat
from playwright.sync_api import Page

from tests.browser import PATIENCE, new_page

HERE = re.compile(r"((http|ws)s?://127\.0\.0\.1[:/]|data:|blob:)")
IDLE = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


@dataclass(frozen=True)
class Server:
    """A server that runs, for the notebooks in a folder, and its kernel."""

    folder: Path
    address: str
    pid: int
    kernel: str


@contextmanager
def notebook(server: Server, name: str, *cells: str) -> Iterator[tuple[Page, list[str]]]:
    """A new notebook of these cells, which run, and the complaints: console errors, exceptions, requests elsewhere."""
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(document, server.folder / f"{name}.ipynb")
    session = {"path": f"{name}.ipynb", "name": name, "type": "notebook", "kernel": {"id": server.kernel}}
    httpx.post(f"{server.address}/api/sessions", json=session, timeout=PATIENCE / 1000).raise_for_status()
    with new_page(viewport={"width": 1400, "height": 1500}) as (page, complaints):
        page.route(lambda url: not HERE.match(url), lambda route: (complaints.append(route.request.url), route.abort()))
        page.goto(f"{server.address}/lab/tree/{name}.ipynb")
        page.wait_for_function(IDLE)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        yield page, complaints


@contextmanager
def jupyter_server(folder: Path) -> Iterator[Server]:
    """A server of the notebooks in a folder."""
    folders = {name: str(folder / "jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    log = folder / "lab.log"
    options = (
        *("--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--expose-app-in-browser"),
        *("--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--LabApp.news_url="),
        "--ServerApp.disable_check_xsrf=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    )
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env={**os.environ, **folders, "JUPYTER_PLATFORM_DIRS": "1", "OMP_NUM_THREADS": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        while not (address := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert server.poll() is None, f"JupyterLab did not start: {log.read_text()[-2000:]}"
            time.sleep(0.1)
        kernel = httpx.post(f"{address[0]}/api/kernels", json={"name": "python3", "path": ""}, timeout=PATIENCE / 1000)
        yield Server(folder, address[0], server.pid, kernel.raise_for_status().json()["id"])
    finally:
        server.terminate()
        server.wait()
