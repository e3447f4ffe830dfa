"""The documentation: that its code runs, its links lead somewhere, and its site works without a network."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import circuits
import retrieval_interp
from circuits.errors import Unsolved
from circuits.mechanisms import registry
from circuits.report.strip import strip
from docs import findings, pictures
from retrieval_interp.models.library import data_folder
from tests.annotations import ROOT
from tests.browser import new_page
from tests.handmade import blank_transformer

FOLDERS = ("docs/*.md", "studies/**/*.md", "benchmarks/*.md", "data/**/*.md")
PAGES = [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted(ROOT.glob(folder)))]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# Small models and few examples show as well that the code runs.
SMALLER = {
    "transformer_a": "induction", "layer=4": "layer=1", "L8H0": "L1H0", "pair3": "pair1",
    "steps=500": "steps=2, compiled=False", "second\"}}))": "second\"}}), n_examples=32)",
    "validate(model, task, circuit)": "validate(model, task, circuit, n_examples=32)",
    "discover(model, task)": "discover(model, task, n_examples=64)",
    "RepeatedToken(), circuit)": "RepeatedToken(), circuit, n_examples=32)",
}  # fmt: skip


def code(page: str) -> str:
    """All Python of a page, made smaller."""
    found = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))
    for much, little in SMALLER.items():
        found = found.replace(much, little)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/uses.md", "docs/circuits.md", "docs/own_model.md"])
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_KNOWN", {})  # other tests of this process register mechanisms, too
    own = blank_transformer(n_layers=2, n_heads=2, d_model=8, d_head=4, n_ctx=20, d_vocab=20, attn_only=True)
    before, _, after = code(page).partition("class RepeatedToken")
    namespace: dict[str, object] = {}
    exec(before, namespace)
    if after:  # the heads of a model without weights do nothing
        with pytest.raises(Unsolved, match="with all heads idle"):
            exec(f"class RepeatedToken{after}", namespace | {"model": own})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page):
    links = (link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
    assert not [link for link in links if not (page.parent / unquote(link)).exists()]


def test_every_picture_and_the_findings_show_what_is_there():
    """Make them again with ``python -m docs.pictures`` or ``python -m docs.findings`` if this fails."""
    assert findings.PAGE.read_text(encoding="utf-8") == findings.page()
    listed = json.loads(pictures.LISTED.read_text())
    assert listed == {name: pictures.hashes(name) for name in pictures.TEMPLATES}
    assert {path.name for path in (ROOT / "docs").glob("*.png")} == {*listed}


def test_the_readme_fits_on_a_few_screens_and_begins_with_a_verdict_as_it_is_stored():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    verdict = " · ".join(map(str, strip(circuits.Report.read(data_folder() / "smollm2/ioi"))))
    assert f"\n> SmolLM2 on IOI: {verdict}\n" in text


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"RETRIEVAL_INTERP_CACHE": str(folder)}  # without SmolLM2, whose examples take minutes
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_the_reference_of_the_site_has_every_public_name(site):
    pages = (page.read_text() for page in (site / "api").glob("*.html"))
    described = {anchor for page in pages for anchor in re.findall(r'id="([\w.]+)"', page)}
    for package in (circuits, retrieval_interp):
        assert {*package.__all__} <= {one.rpartition(".")[2] for one in described if one.startswith(package.__name__)}


@pytest.mark.slow
def test_the_site_opens_from_a_folder_without_a_network_and_finds_what_is_searched(site):
    with new_page(offline=True) as (page, complaints):
        page.on("request", lambda request: complaints.append(request.url) if "file://" not in request.url else None)
        for name in ("tutorials/3_the_paper", "api/circuits.task", "gallery", "index"):  # the last one has the search
            page.goto((site / f"{name}.html").as_uri())
            page.locator("h1").first.wait_for()
        page.locator("article iframe").content_frame.locator(".circuit-diagram").first.wait_for()  # no SmolLM2
        page.get_by_role("textbox", name="Search").fill("faithfulness")
        page.locator(".md-search-result__link").first.wait_for()
    assert not complaints
