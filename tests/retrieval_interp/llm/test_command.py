import json
from pathlib import Path

import pytest

from retrieval_interp.llm.page import write_accuracy
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen
from retrieval_interp.prompts import formulation
from tests.browser import opened
from tests.command import refusal, run
from tests.llm_models import mock
from tests.solver import solve


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an oracle answered."""
    folder = tmp_path_factory.mktemp("logs")
    tasks = chosen(["equations", "kingdoms"], [1, 3], samples=3, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(solve)], folder, quiet=True)[1] is None
    return folder


@pytest.mark.slow
def test_the_page_works_offline_and_names_of_models_are_text_and_no_links(logs: Path, tmp_path: Path) -> None:
    nasty = "<a href='http://evil.example/'>m</a></script><script>document.title='owned'</script>"
    table = results(logs_in(logs)).assign(model=nasty)
    with opened(write_accuracy(table, tmp_path, nasty)) as (page, complaints):
        assert page.locator("#table tr").count() == 1 + 3
        assert page.locator("#accuracy .legendtext").all_text_contents() == [nasty, "chance"]
        labels = ["equationsD = 1", "equationsD = 3", "kingdoms"]
        assert page.locator("#accuracy .xtick").all_text_contents() == labels
        assert page.locator("a[href*=evil], a[*|href*=evil]").count() == 0
        assert page.title() != "owned"
        assert complaints == []


def test_existing_logs_are_a_table_a_page_and_one_json_document(logs: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run(capsys, "llm", "ask", "--from-logs", logs, "--out", tmp_path, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert {row["formulation"] for row in rows} == {"equations", "kingdoms"}
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)
    comment, header, *_ = (tmp_path / "accuracy.csv").read_text().splitlines()
    assert comment == f"# retrieval-interp llm ask --from-logs {logs}"
    assert header.startswith("model,formulation,steps")
    code, out, _ = run(capsys, "llm", "ask", "--from-logs", logs, "--out", tmp_path)
    assert code == 0
    assert "The page is at" in out


def test_prompts_shows_one_or_all(capsys) -> None:  # type: ignore[no-untyped-def]
    questions = formulation("equations", 3).questions(7, 4)
    command = ("llm", "prompts", "equations", "--n", 7, "--steps", 3, "--seed", 4)
    shown = f"{questions[0].prompt}\nCorrect: {questions[0].answer}\nAcceptable: 0, 1, 2, 3\n"
    assert run(capsys, *command)[:2] == (0, shown)
    code, out, _ = run(capsys, *command, "--json")
    assert (code, out) == (0, json.dumps([question.to_json() for question in questions], indent=2) + "\n")
    assert json.loads(out)[0]["marks"][0][2:] == ["pair3.first", questions[0].marks[0].chain]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prompts", "riddles"], "unknown formulation 'riddles'"),
        (["prompts", "equations", "--chains", 2, "--steps", 1, "--n", 50], "only 8 different questions were found"),
        (["ask"], "name models with --model"),
        (["ask", "--model", "a/b", "--from-logs", "."], "or give --from-logs alone"),
        (["ask", "--from-logs", "/nowhere"], "/nowhere: no such folder"),
        (["ask", "--model", "mockllm/model", "--steps", "1-99999999"], "expected numbers from 1 to 100"),
        (["ask", "--model", "mockllm/model", "--steps", "3-1"], "steps '3-1'; expected numbers from 1 to 100"),
        (["ask", "--model", "equations", "--forced-choice", "--temperature", 1], "leave out --temperature"),
        (["ask", "--model", "mockllm/model", "--formulations", "riddles"], "unknown formulation 'riddles'"),
        (["ask", "--model", "mockllm/model", "--formulations", "kingdoms", "--chains", 9], "n_chains is 9"),
        (["ask", "--model", "a/b", "--formulations", "kingdoms", "--steps", 3], "kingdoms: the number of steps cannot"),
        (["ask", "--model", "nosuch/model", "--formulations", "kingdoms"], "nosuch"),
        (["ask", "--model", "hooked/one_layer", "--formulations", "kingdoms"], "one_layer: reads no text"),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments, named: str, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert named in refusal(capsys, "llm", *arguments)
