"""A headless Chromium without a network, that remembers what a page said and asked for.

One for each process that runs tests: every page has a context of its own, so that they share nothing but the time that
it takes to start.
"""

import asyncio
import atexit
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
SILENT = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE = 600_000  # milliseconds, for whatever a page is waited for: machines may be busy
# Figures and viewers say so when they are drawn; viewers are when one comes near.
NOT_DRAWN = ".plotly-graph-div:not([data-drawn]), .attention-viewer:empty, .attention-panel:not([data-drawn])"
SEE_ALL = (
    "what => { const left = document.querySelector(what); (left ?? document.body).scrollIntoView(); return !left; }"
)
OTHERS = (".plotly-graph-div", ".attention-viewer", ".attention-panel", ".noUi-handle")  # drawn by libraries
SERIOUS = ("serious", "critical")

expect.set_options(timeout=PATIENCE)


def chromium() -> str:
    """Its path; where there is none the test is skipped, but never in CI.

    `make test` promises to need Python, make and git alone, so a missing browser must not fail it;
    pytest lists the skip.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = "no Chromium here; install it to test the pages where people see them"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return path


@cache
def _browser() -> tuple[Browser, asyncio.AbstractEventLoop]:
    """The browser of this process, which ends with it, and the event loop in which it is talked to."""
    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()

    @atexit.register
    def stop() -> None:
        asyncio._set_running_loop(loop)
        playwright.stop()

    return playwright.chromium.launch(executable_path=chromium(), args=list(SILENT)), loop


@contextmanager
def browser() -> Iterator[Browser]:
    """The browser; its event loop counts as running only in between, so that other tests can have their own."""
    try:
        there, loop = _browser()
        asyncio._set_running_loop(loop)
        yield there
    finally:
        asyncio._set_running_loop(None)


@contextmanager
def new_page(**settings: object) -> Iterator[tuple[Page, list[str]]]:
    """A page in a new context, and its complaints: console errors and exceptions."""
    with browser() as running, closing(running.new_context(**settings)) as context:
        context.set_default_timeout(PATIENCE)
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page, complaints


@contextmanager
def opened(file: Path) -> Iterator[tuple[Page, list[str]]]:
    """The page of a file; its complaints tell of other requests, and of what axe-core finds serious."""
    with new_page(offline=True, viewport={"width": 1200, "height": 900}) as (page, complaints):
        page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        page.wait_for_function(SEE_ALL, arg=NOT_DRAWN)
        complaints += barriers(page)
        yield page, complaints


def barriers(page: Page, part: str = "html") -> list[str]:
    """What keeps some people from using a page, by axe-core: its serious violations, but for what libraries draw."""
    left_out = [[one] for one in OTHERS if page.locator(one).count()]
    found = Axe().run(page, {"include": [[part]], "exclude": left_out}).response["violations"]
    return [f"{one['id']}: {node['html']:.300}" for one in found if one["impact"] in SERIOUS for node in one["nodes"]]


def assert_inked(page, viewer):
    """A circuitsvis viewer really draws: on the largest of its canvases there are more than 1,000 blue pixels."""
    assert page.evaluate(
        """viewer => 1000 < Math.max(...[...document.querySelectorAll(viewer + " canvas")].map(canvas => {
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            let drawn = 0;
            for (let i = 0; i < data.length; i += 4)
                if (data[i + 3] > 0 && data[i + 2] > data[i] + 40) drawn++;  // the blue of attention
            return drawn;
        }))""",
        viewer,
    )
