"""Measure the response times of the explorer, in the kernel and in JupyterLab with a headless Chromium.

    python -m benchmarks.explorer [--model transformer_a] [--json]

The times are medians in seconds over paths and heads that were not tried before. In the kernel: until all messages are
sent. In JupyterLab: from the click until the new loss is shown; this needs Chromium.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.arguments import loadable
from circuits.explorer import Explorer, explore
from retrieval_interp import load
from retrieval_interp.models.provenance import versions
from tests.jupyter import jupyter_server, notebook

ROUNDS = 5
QUIET = 2000  # milliseconds between two clicks, so that drawing has finished
CELL = """from circuits.explorer import explore
from retrieval_interp import load
explore(*load({model!r}))"""
CLICK = """selector => new Promise((done) => {
    const line = () => document.querySelector("[role=status]")?.innerText;
    const before = line(), started = performance.now();
    document.querySelector(selector).dispatchEvent(new MouseEvent("click", { bubbles: true }));
    const look = () => (line() !== before ? done((performance.now() - started) / 1000) : requestAnimationFrame(look));
    look();
})"""


def acts(explorer: Explorer) -> dict[str, list[str]]:
    """Return the paths and heads to click, as named in the diagram."""
    hypothesis = explorer.exploration.draft.hypothesis
    paths = [f"path {path}" for path in hypothesis.paths]
    heads = [f"head {head}" for head in explorer.exploration.heads if head not in hypothesis.useful_heads]
    return {"path": paths[:ROUNDS], "head": heads[:ROUNDS]}


def in_kernel(explorer: Explorer) -> dict[str, float]:
    """Measure the seconds in the kernel."""

    def press(name: str) -> None:
        explorer.buttons[name].click()

    def click(act: str) -> None:
        explorer.diagram._handle_custom_msg(act, [])

    clicked = {name: every for name, every in acts(explorer).items() if every}
    taken = {name: statistics.median(seconds(click, act) for act in every) for name, every in clicked.items()}
    return {**taken, **{name: seconds(press, name) for name in ("undo", "exact", "minimal?")}}


def in_lab(model: str, clicked: dict[str, list[str]]) -> dict[str, float]:
    """Measure the seconds in JupyterLab."""
    with (
        tempfile.TemporaryDirectory() as folder,
        jupyter_server(Path(folder)) as server,
        notebook(server, "explored", CELL.format(model=model)) as (page, _),
    ):
        page.locator("[role=status]").get_by_text("The circuit's loss").wait_for()
        taken: dict[str, list[float]] = {name: [] for name in clicked}
        for name, every in clicked.items():
            for act in every:
                page.wait_for_timeout(QUIET)
                taken[name].append(page.evaluate(CLICK, f"[data-act='{act}']"))
                print(f"\r{act}: {taken[name][-1]:.2f} s in JupyterLab ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {name: statistics.median(each) for name, each in taken.items()}


def seconds(step: Callable[[str], None], argument: str) -> float:
    started = time.perf_counter()
    step(argument)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=loadable, default="transformer_a")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    explorer = explore(*load(arguments.model))
    clicked = acts(explorer)
    kernel, lab = in_kernel(explorer), in_lab(arguments.model, clicked)
    result = {"model": arguments.model, "threads": torch.get_num_threads(), "kernel": kernel, "lab": lab}
    if arguments.json:
        print(json.dumps({**versions(), **result}, indent=2))
        return
    for place, taken in (("kernel", kernel), ("JupyterLab", lab)):
        print(f"{place}: {', '.join(f'{name} {value:.3f} s' for name, value in taken.items())}")


if __name__ == "__main__":
    main()
