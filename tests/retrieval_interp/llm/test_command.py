import json
from pathlib import Path

import pytest

from retrieval_interp.llm.page import write_accuracy
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen
from retrieval_interp.prompts import FORMULATIONS, formulation
from tests.browser import opened
from tests.command import run
from tests.llm_models import mock
from tests.solver import solve


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an oracle answered."""
    folder = tmp_path_factory.mktemp("logs")
    tasks = chosen(list(FORMULATIONS), [1, 2, 3], samples=5, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(solve)], folder, quiet=True).missing is None
    return folder


@pytest.mark.slow
def test_figure_2_is_made_of_existing_logs_and_works_offline(logs: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run(capsys, "llm", "ask", "--from-logs", logs, "--out", tmp_path)
    assert code == 0
    assert "The page is at" in out
    with opened(tmp_path / "accuracy.html") as (page, complaints):
        assert page.locator("#accuracy-table tr").count() == 1 + 7
        assert page.locator("#accuracy .scatterlayer .trace").count() == 4
        assert set(page.locator("#accuracy .legendtext").all_text_contents()) == {"mockllm/model", "chance"}
        labels = page.locator("#accuracy .xtick").all_text_contents()
        assert labels == ["equationsD = 3", "lives-withD = 5", "kingdoms", "functions", "relatives"]
        cells = page.locator("#accuracy-table tr").nth(7).locator("td").all_text_contents()
        assert cells[:3] == ["mockllm/model", "relatives", ""]
        assert complaints == []
    assert (tmp_path / "accuracy.csv").read_text().startswith(f"# retrieval-interp llm ask --from-logs {logs}\n")


@pytest.mark.slow
def test_names_of_models_from_logs_appear_as_text_and_are_no_links(logs: Path, tmp_path: Path) -> None:
    nasty = "<a href='http://evil.example/'>m</a></script><script>document.title='owned'</script>"
    table = results(logs_in(logs)).assign(model=nasty)
    with opened(write_accuracy(table, tmp_path, nasty)) as (page, complaints):
        assert page.locator("#accuracy .legendtext").first.text_content() == nasty
        assert page.locator("a[href*=evil], a[*|href*=evil]").count() == 0
        assert nasty in page.inner_text("body")
        assert page.title() != "owned"
        assert complaints == []


def test_llm_prints_one_json_document(logs: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run(capsys, "llm", "ask", "--from-logs", logs, "--out", tmp_path, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert {row["formulation"] for row in rows} == set(FORMULATIONS)
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)


def test_prompts_shows_one_and_writes_all(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "questions.jsonl"
    code, out, errors = run(capsys, "llm", "prompts", "equations", "--n", 7, "--steps", 3, "--seed", 4, "--out", file)
    assert code == 0
    written = [json.loads(line) for line in file.read_text().splitlines()]
    questions = formulation("equations", 3).questions(7, 4)
    assert written == [question.to_json() for question in questions]
    assert out.startswith(questions[0].prompt)
    assert f"Correct: {questions[0].answer}\nAcceptable: 0, 1, 2, 3" in out
    assert "6 more" in errors
    code, out, _ = run(capsys, "llm", "prompts", "relatives", "--n", 2, "--json")
    assert code == 0
    assert [len(question["acceptable"]) for question in json.loads(out)] == [16, 16]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["llm", "prompts", "riddles"], "unknown formulation 'riddles'"),
        (["llm", "prompts", "kingdoms", "--steps", 4], "kingdoms: the number of steps cannot be chosen"),
        (["llm", "prompts", "equations", "--steps", 0], "n_steps is 0"),
        (["llm", "prompts", "equations", "--chains", 2, "--steps", 1, "--n", 50], "no more than 8 different questions"),
        (["llm", "prompts", "equations", "--out", "/proc/nowhere/q.jsonl"], "/proc/nowhere/q.jsonl: cannot be written"),
        (["llm", "ask"], "name a model with --model"),
        (["llm", "ask", "--model", "a/b", "--from-logs", "."], "leave --model out"),
        (["llm", "ask", "--from-logs", "/nowhere"], "/nowhere: no such folder"),
        (["llm", "ask", "--model", "mockllm/model", "--steps", "1-99999999"], "expected numbers from 1 to 100"),
        (["llm", "ask", "--model", "mockllm/model", "--steps", "5-3,1"], "expected numbers from 1 to 100"),
        (["llm", "ask", "--model", "mockllm/model", "--steps", "3-1"], "steps '3-1'; expected numbers from 1 to 100"),
        (["llm", "ask", "--model", "mockllm/model", "--steps", "many"], "steps 'many'"),
        (["llm", "ask", "--model", "mockllm/model", "--formulations", "riddles"], "unknown formulation 'riddles'"),
        (["llm", "ask", "--model", "nosuch/model", "--formulations", "kingdoms"], "nosuch"),
        (["llm", "ask", "--model", "hooked/one_layer", "--formulations", "kingdoms"], "one_layer: reads no text"),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments, named: str, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, out, errors = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    line = errors.strip().splitlines()[-1]
    assert line.startswith("retrieval-interp: ")
    assert named in line
    assert "Traceback" not in errors
