from dataclasses import replace

import pytest

from circuits import Circuit, validate
from circuits.report import write_report
from retrieval_interp import load
from retrieval_interp.cli import main
from tests.browser import opened


@pytest.fixture(scope="module")
def loaded():
    return load("transformer_a")


def test_the_report_shows_verdict_diagram_tables_and_a_working_viewer_offline(loaded, tmp_path):
    model, task, circuit = loaded
    report = validate(model, task, circuit, n_examples=32)
    with opened(write_report(report, model, task, tmp_path)) as (page, complaints):
        assert "transformer_a holds" in page.locator("#verdict h1").inner_text()
        assert page.locator("#verdict li").count() == len(report.verdicts)
        assert page.locator("#paths-table tr").count() == 2 + len(report.paths)
        assert page.locator("#heads-table tr").count() == 1 + 12
        # plotly draws an annotation for every arrow
        assert page.locator("#circuit-diagram .annotation").count() >= len(circuit.paths)
        assert page.locator("#losses .scatterlayer .trace").count() == 3
        assert page.locator("#role-attention .hm image, #role-attention .heatmaplayer image").count() == 12
        viewer = page.locator("#attention-viewer-0")
        viewer.locator("canvas, svg, img").first.wait_for()
        assert "L11H0" in viewer.inner_text()
        assert viewer.bounding_box()["height"] > 300
        assert complaints == []


def test_view_writes_one_offline_file_with_a_viewer_for_each_example(tmp_path):
    file = tmp_path / "attention.html"
    with pytest.raises(SystemExit) as ended:
        main(["view", "transformer_a", "--examples", "2", "--out", str(file)])
    assert ended.value.code == 0
    with opened(file) as (page, complaints):
        for example in range(2):
            page.locator(f"#attention-viewer-{example}").locator("canvas, svg, img").first.wait_for()
        text = page.locator("body").inner_text()
        assert "pair3.second" in text or page.locator("text=pair3.second").count()
        assert complaints == []


def test_names_from_files_appear_as_text_and_are_never_run(model, problem, circuit, tmp_path):
    nasty = "</script><script>document.title='owned'</script>"
    report = validate(model, problem, replace(circuit, name=nasty, description=nasty), n_examples=8)
    with opened(write_report(report, model, problem, tmp_path)) as (page, complaints):
        assert nasty in page.locator("#verdict h1").inner_text()
        assert page.title() != "owned"
        assert complaints == []


def test_a_circuit_that_fails_says_so_in_words_not_only_in_colour(model, problem, circuit, tmp_path):
    report = validate(model, problem, Circuit(dict(list(circuit.heads.items())[:1])), n_examples=8)
    with opened(write_report(report, model, problem, tmp_path)) as (page, _):
        assert "does not hold" in page.locator("#verdict h1").inner_text()
        assert "step 4 failed" in page.locator("#verdict").inner_text()
