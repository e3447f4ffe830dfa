from dataclasses import replace

import pytest

from circuits import Head, Report, discover, path_patching, validate
from circuits.checks.carries import Carries
from circuits.checks.minimality import Removal
from circuits.losses.loss import Loss, Mean
from circuits.losses.sequential_test import DecidedLoss
from circuits.report.report import against
from circuits.report.strip import strip
from tests.browser import assert_inked, barriers, opened


@pytest.mark.slow
def test_the_report_shows_verdict_diagram_tables_and_a_working_viewer_offline(model, task, circuit, tmp_path):
    report = validate(model, task, circuit, n_examples=32, threshold=0.1).about({"weights": "f" * 64})
    with opened(report.save(tmp_path)) as (page, complaints):
        assert "induction" in page.locator("h1").inner_text()
        assert page.locator("#strip li").all_inner_texts() == [*map(str, strip(report))]
        for fact in strip(report):
            assert page.locator(f"[id={fact.at}]").count() == 1
        assert page.locator("#statements > li").count() == len(report.statements) + 1
        assert page.locator("#paths-table tr").count() == 1 + len(report.parts)
        assert page.locator("#heads-table tr").count() == 1 + 2
        assert page.locator(".circuit-diagram polygon").count() >= len(circuit.paths)
        assert page.locator("#losses .scatterlayer .trace").count() == 5
        assert_inked(page, "#attention-viewer-0")
        assert "L1H0" in page.locator("#attention-viewer-0").inner_text()
        assert page.locator("#contents a").count() == page.locator("main > h2").count()
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 390, "height": 800})
        assert complaints + barriers(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 390  # what is wider scrolls by itself


@pytest.mark.slow
def test_names_from_files_appear_as_text_and_are_never_run(model, task, circuit, tmp_path):
    nasty = "</script><script>document.title='owned'</script>"
    report = validate(model, task, replace(circuit, name=nasty, description=nasty), n_examples=8)
    with opened(report.save(tmp_path)) as (page, complaints):
        assert nasty in page.locator("h1").inner_text()
        assert page.title() != "owned"
        assert complaints == []


@pytest.mark.slow
def test_a_circuit_that_fails_says_so_in_words_not_only_in_colour(model, task, circuit, tmp_path):
    report = validate(model, task, circuit.with_head("L1H0", "idle"), n_examples=128)
    with opened(report.save(tmp_path)) as (page, _):
        assert "✗ the circuit fails" in page.locator("#strip").inner_text()
        assert "solves: fails" in page.locator("#verdict").inner_text()
        assert page.locator("#notes li").count() == len(report.notes)
        assert page.locator("#completeness-table tr").count() == 1 + len(report.knockouts)
    empty = {"carries": Carries(verdicts=(), flow=None, self_consistency=None)}
    again = Report.model_validate_json(report.model_copy(update=empty).model_dump_json())
    assert "– carries says nothing (no path between roles)" in map(str, strip(again))


@pytest.mark.slow
def test_the_report_of_a_discovery_tells_how_the_circuit_was_found(model, task, tmp_path):
    found = discover(model, task)
    report = validate(model, task, found.circuit, n_examples=64, seed=1)
    edges = path_patching(model, task, found.circuit, n_examples=16)
    report = report.model_copy(update={"discovery": found, "composition": edges})
    with opened(report.save(tmp_path)) as (page, complaints):
        steps = page.locator("#discovery-steps li").all_inner_texts()
        assert any(step.startswith("simplify L0H0: previous. Loss 0.0000") for step in steps)
        assert page.locator("#composition li").count() == len(edges.of())
        assert "Q: " in page.locator(".circuit-diagram").inner_text()
        assert "paths intact" in page.locator("#self-consistency").inner_text()
        assert complaints == []
    assert Report.read(tmp_path / "report.json") == report


def test_a_head_works_against_the_task_if_the_measure_rises_whatever_is_instead_of_it():
    def part(head, **ahead):
        losses = {way: DecidedLoss(Loss(0.0, 0.0, 9), "above", 0.0, Mean(*one, 9)) for way, one in ahead.items()}
        return Removal(head=Head(0, head), path=None, losses=losses, intact={}, needed="no")

    rises, falls, unclear = (0.5, 0.1), (-0.1, 0.01), (0.5, 0.3)
    parts = (
        part(0, uniform=rises, identity=(0.6, 0.1)),
        part(1, uniform=falls, identity=rises),
        part(2, mean=unclear),
        part(3, mean=rises),
        part(3, uniform=(0.01, 0.001)),  # another path of the same head
    )
    assert {head.index: more.mean for head, more in against(parts, 0.1).items()} == {0: 0.5}
