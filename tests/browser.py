"""A headless Chromium without a network, that remembers what a page said and asked for."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
SILENT = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")

expect.set_options(timeout=30_000)  # milliseconds, as whatever else a page is waited for: machines may be busy


def chromium() -> str:
    """Its path; where there is none the test is skipped, but never in CI.

    `make test` promises to need Python, make and git alone, so a missing browser must not fail it;
    pytest lists the skip.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        message = "no Chromium here; install it to test the pages where people see them"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return found


@contextmanager
def opened(file: Path) -> Iterator[tuple[Page, list[str]]]:
    """The page of a file and its complaints: console errors, exceptions, and requests beyond the file itself."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(SILENT))
        page = browser.new_context(offline=True, viewport={"width": 1200, "height": 900}).new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        try:
            yield page, complaints
        finally:
            browser.close()
