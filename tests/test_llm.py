import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai import eval as evaluate
from inspect_ai.log import EvalLog, write_eval_log
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolChoice, ToolInfo

from benchmarks.solver import solve
from circuits import BadInput
from circuits.statistics import Interval
from retrieval_interp.cli import main
from retrieval_interp.llm.answers import accepted, normalise
from retrieval_interp.llm.page import accuracy_figure, by_formulation, with_series, write_accuracy
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen, set_damaged_aside
from retrieval_interp.llm.tasks import equations, kingdoms, relatives
from retrieval_interp.prompts import FORMULATIONS, formulation
from tests.browser import opened


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm", text)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else Inspect fetches a tokenizer
    return output


def mock(answers: list[str | Exception] | Callable[[str], str]) -> Model:
    """A model of Inspect that gives these answers in turn, or one to each question."""
    left: Iterator[str | Exception] | None = iter(answers) if isinstance(answers, list) else None

    def respond(
        input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        answer = next(left) if left is not None else answers(input[-1].text)  # type: ignore[operator]
        if isinstance(answer, Exception):
            raise answer
        return said(answer)

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def run(model: Model, tmp_path: Path, **sizes: int) -> EvalLog:
    return evaluate(equations(**sizes), model=model, log_dir=str(tmp_path), display="none", max_samples=1)[0]


def wrong(question: str) -> str:
    return str((int(solve(question)) + 1) % 4)


@pytest.mark.parametrize(
    "text",
    [
        "Berlin",
        "berlin",
        " Berlin. ",
        '"Berlin"',
        "**Berlin**",
        "Berlin!\n",
        "«BERLIN»",
        "„Berlin“",
        "\u00a0`Berlin`\u3000",
    ],
)
def test_case_and_what_stands_around_an_answer_do_not_count(text: str) -> None:
    assert accepted(text, ["Amsterdam", "Berlin"]) == "Berlin"


@pytest.mark.parametrize(
    "text",
    [
        "It is Berlin",
        "Berlin Amsterdam",
        "",
        "Ber lin",
        "Berlin, Germany",
        "-",
        "Berl",
        "-Berlin",
        "$Berlin",
        "Berlin%",
    ],
)
def test_nothing_is_searched_for_inside_a_text(text: str) -> None:
    assert accepted(text, ["Amsterdam", "Berlin"]) is None


@pytest.mark.parametrize("text", ["-2", "\u20132", ".2", "2%", "2\u2030", "/2", "2/"])
def test_another_number_is_another_answer(text: str) -> None:
    assert accepted(text, ["1", "2"]) is None
    assert accepted("**2**.", ["1", "2"]) == "2"


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_every_answer_of_every_formulation_is_accepted_as_itself_alone() -> None:
    for name in FORMULATIONS:
        question = formulation(name).questions(1, 0)[0]
        assert [accepted(answer, question.acceptable) for answer in question.acceptable] == list(question.acceptable)


def test_an_oracle_is_always_right_and_who_is_always_wrong_never(tmp_path: Path) -> None:
    for model, expected in ((mock(solve), 1.0), (mock(wrong), 0.0)):
        log = run(model, tmp_path, samples=12)
        assert log.status == "success"
        assert log.results is not None
        metrics = log.results.scores[0].metrics
        assert metrics["accuracy"].value == expected
        assert metrics["exhausted"].value == 0


def test_sampling_is_repeated_until_an_answer_is_acceptable(tmp_path: Path) -> None:
    right = formulation("equations").questions(1, 0)[0].answer
    log = run(mock(["I think that", "so it is 2", f"{right}."]), tmp_path, samples=1, attempts=5)
    assert log.samples is not None
    score = log.samples[0].scores["exact"]  # type: ignore[index]
    assert score.value == "C"
    assert score.metadata == {"attempts": 3, "exhausted": False}
    assert len(log.samples[0].messages) == 2, "asked afresh, without what was said before"


def test_what_runs_into_the_cap_is_counted_apart_and_never_right(tmp_path: Path) -> None:
    right = [question.answer for question in formulation("equations").questions(2, 0)]
    log = run(mock([f"Well, {right[0]}"] * 3 + [right[1]]), tmp_path, samples=2, attempts=3)
    assert log.samples is not None
    assert [sample.scores["exact"].value for sample in log.samples] == ["N", "C"]  # type: ignore[index]
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["asked"], row["right"], row["exhausted"], row["failed"]) == (2, 1, 1, 0)
    assert row["accuracy"] == 0.5


def test_only_the_first_answer_may_come_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_CACHE_DIR", str(tmp_path / "cache"))
    right = formulation("equations").questions(1, 0)[0].answer
    model = mock(["no answer", right])
    log = evaluate(equations(samples=1), model=model, log_dir=str(tmp_path), display="none", cache=True)[0]
    assert log.samples is not None
    assert log.samples[0].scores["exact"].metadata["attempts"] == 2  # type: ignore[index]


def test_what_failed_is_named_and_asked_again_and_nothing_else_is(tmp_path: Path) -> None:
    asked: list[str] = []

    def sometimes(question: str) -> str:
        asked.append(question)
        if len(asked) == 3:
            raise RuntimeError("the connection broke")
        return solve(question)

    tasks = chosen(["equations"], [2], samples=6, chains=4, seed=0, attempts=2)
    missing = ask(tasks, [mock(sometimes)], tmp_path, quiet=True).missing
    assert missing is not None
    assert "the connection broke" in missing
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["asked"], row["right"], row["failed"]) == (5, 5, 1)
    tasks = chosen(["equations"], [2], samples=6, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(sometimes)], tmp_path, quiet=True).missing is None
    assert len(asked) == 7
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["asked"], row["right"], row["failed"]) == (6, 6, 0)


def test_other_options_are_other_results_and_of_the_same_the_newest_counts(tmp_path: Path) -> None:
    for attempts, model in ((2, mock(solve)), (3, mock(wrong)), (2, mock(wrong))):
        run(model, tmp_path, samples=4, attempts=attempts)
    table = results(logs_in(tmp_path)).set_index("attempts")
    assert table["right"].to_dict() == {2: 0, 3: 0}
    assert table["asked"].to_dict() == {2: 4, 3: 4}


def test_what_was_interrupted_is_not_called_done(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    asked: list[str] = []

    def stopped(question: str) -> str:
        asked.append(question)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return solve(question)

    # As in a process of its own: an event loop stops for Ctrl-C only where nothing else has been told to see to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    tasks = chosen(["equations"], [2], samples=40, chains=4, seed=0, attempts=2)
    with pytest.raises(KeyboardInterrupt):
        ask(tasks, [mock(stopped)], tmp_path, quiet=True, max_samples=1)  # else all may be answered before it is heard
    assert len(asked) < 40


def test_the_questions_of_a_task_are_those_of_the_seed_with_their_chance_level() -> None:
    task = relatives(samples=3, seed=5)
    questions = formulation("relatives").questions(3, 5)
    assert [sample.input for sample in task.dataset] == [question.prompt for question in questions]
    assert task.metadata is not None
    assert task.metadata["chance"] == 1 / 16
    assert kingdoms(samples=1).config.max_tokens == 32


def test_results_show_every_task_with_wilsons_interval(tmp_path: Path) -> None:
    tasks = chosen(["equations", "relatives"], [1, 3], samples=4, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(solve)], tmp_path / "logs", quiet=True).missing is None
    table = results(logs_in(tmp_path / "logs"))
    assert [(row.formulation, row.steps) for row in table.itertuples()][:2] == [("equations", 1), ("equations", 3)]
    assert table["accuracy"].tolist() == [1.0, 1.0, 1.0]
    assert table["low"].tolist() == [Interval.of_share(4, 4).low] * 3
    assert table["chance"].tolist() == [0.25, 0.25, 0.0625]
    single = by_formulation(with_series(table)).set_index("formulation")
    assert single.loc["equations", "steps"] == 3, "the nearest to the paper's five"
    figure = accuracy_figure(table)
    assert [trace.name for trace in figure.data] == ["mockllm/model", "mockllm/model", "chance", "chance"]
    page = write_accuracy(table, tmp_path / "page", "a test")
    assert "mockllm/model" in page.read_text()
    assert (tmp_path / "page" / "accuracy.csv").read_text().startswith("# a test\nmodel,formulation,steps")


def test_what_was_asked_with_other_options_stands_apart_in_the_figure(tmp_path: Path) -> None:
    for chains, steps, seed in ((4, 5, 0), (8, 2, 0), (4, 2, 1)):
        tasks = chosen(["equations"], [steps], samples=4, chains=chains, seed=seed, attempts=2)
        assert ask(tasks, [mock(solve)], tmp_path, quiet=True).missing is None
    table = with_series(results(logs_in(tmp_path)))
    assert table["series"].nunique() == 3
    assert all(name.startswith("mockllm/model, chains ") for name in table["series"])
    figure = accuracy_figure(table)
    assert [*figure.layout.xaxis.ticktext] == [
        f"equations<br>D = {steps}<br>{chains} chains" for steps, chains in ((5, 4), (2, 4), (2, 8))
    ]
    left, right = (trace for trace in figure.data if trace.name == "chance")
    assert [level for level in left.y if level is not None] == [0.25, 0.25, 0.25, 0.25, 0.125, 0.125]
    assert {level for level in right.y if level is not None} == {0.25, 0.125}


@pytest.mark.parametrize("attempts", [0, -3])
def test_a_question_is_asked_at_least_once(attempts: int) -> None:
    with pytest.raises(BadInput, match=f"attempts is {attempts}; expected"):
        equations(samples=2, attempts=attempts)


def test_an_interval_of_a_share_is_wilsons() -> None:
    # Wilson (1927) for 8 of 10, worked out by hand with z = 1.959964
    interval = Interval.of_share(8, 10)
    assert interval.mean == 0.8
    assert interval.low == pytest.approx(0.49016, abs=1e-4)
    assert interval.high == pytest.approx(0.94332, abs=1e-4)
    assert Interval.of_share(0, 5).low == 0
    assert Interval.of_share(5, 5).high == 1


def test_folders_without_logs_and_damaged_logs_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        logs_in(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="none of them of these tasks"):
        results(logs_in(tmp_path))
    run(mock(solve), tmp_path, samples=2)
    log = next(tmp_path.glob("*.eval"))
    log.write_bytes(log.read_bytes()[:300])
    said: list[str] = []
    with pytest.raises(BadInput, match="none of them of these tasks"):
        results([log], said.append)
    assert said[0].startswith(f"{log}: left out, not a whole log of Inspect")
    run(mock(solve), tmp_path, samples=3)
    assert set_damaged_aside(tmp_path) == [log.with_suffix(".eval.damaged")]
    assert results(logs_in(tmp_path))["asked"].tolist() == [3]
    other = tmp_path / "2026-01-01T00-00-00_equations_x.json"
    other.write_text('{"version": 2}')
    assert set_damaged_aside(tmp_path) == [other.with_name(f"{other.name}.damaged")]
    assert set_damaged_aside(tmp_path) == []


def test_logs_are_found_in_folders_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "logs#1? %20x"
    run(mock(solve), folder, samples=1)
    assert results(logs_in(folder))["asked"].tolist() == [1]


def test_a_log_that_does_not_say_how_often_was_asked_counts(tmp_path: Path) -> None:
    log = run(mock(solve), tmp_path, samples=1)
    assert log.eval.metadata is not None
    del log.eval.metadata["attempts"]
    write_eval_log(log, log.location)
    assert results(logs_in(tmp_path))["asked"].tolist() == [1]


def test_a_log_that_would_fill_the_memory_is_left_out(tmp_path: Path) -> None:
    run(mock(solve), tmp_path, samples=2)
    (log,) = tmp_path.glob("*.eval")
    with ZipFile(log, "a", ZIP_DEFLATED) as packed, packed.open("summaries/9.json", "w") as bomb:
        for _ in range(257):  # a quarter of a MiB when packed
            bomb.write(bytes(2**20))
    said: list[str] = []
    with pytest.raises(BadInput, match="none of them of these tasks"):
        results([log], said.append)
    assert said[0].endswith("bytes to be read at once; expected 268435456 at most)")


@pytest.mark.parametrize(
    "described",
    [{"steps": [2]}, {"steps": "many"}, {"chains": 10**30}, {"chains": None}, {"seed": {}}, {"attempts": 0.5}],
)
def test_a_log_that_describes_no_task_is_left_out(described: dict[str, object], tmp_path: Path) -> None:
    log = run(mock(solve), tmp_path, samples=1)
    assert log.eval.metadata is not None
    log.eval.metadata.update(described)
    write_eval_log(log, log.location)
    said: list[str] = []
    with pytest.raises(BadInput, match="none of them of these tasks"):
        results(logs_in(tmp_path), said.append)
    assert len(said) == 1


def test_unknown_formulations_and_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown formulation 'riddles'"):
        chosen(["riddles"], [1], 4, 4, 0, 2)
    tasks = chosen(["kingdoms"], [1], 4, 4, 0, 2)
    with pytest.raises(BadInput, match="nosuch"):
        ask(tasks, ["nosuch/model"], tmp_path, quiet=True)


def test_a_missing_key_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(BadInput, match="OPENAI_API_KEY"):
        ask(chosen(["kingdoms"], [1], 2, 4, 0, 2), ["openai/gpt-4o"], tmp_path, quiet=True)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    out, errors = capsys.readouterr()
    return ended.value.code, out, errors


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an oracle answered."""
    folder = tmp_path_factory.mktemp("logs")
    tasks = chosen(list(FORMULATIONS), [1, 2, 3], samples=5, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(solve)], folder, quiet=True).missing is None
    return folder


def test_figure_2_is_made_of_existing_logs_and_works_offline(logs: Path, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = command(capsys, "llm", "--from-logs", logs, "--out", tmp_path)
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
    assert (tmp_path / "accuracy.csv").read_text().startswith(f"# retrieval-interp llm --from-logs {logs}\n")


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
    code, out, _ = command(capsys, "llm", "--from-logs", logs, "--out", tmp_path, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert {row["formulation"] for row in rows} == set(FORMULATIONS)
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in rows)


def test_prompts_shows_one_and_writes_all(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "questions.jsonl"
    code, out, errors = command(capsys, "prompts", "equations", "--n", 7, "--steps", 3, "--seed", 4, "--out", file)
    assert code == 0
    written = [json.loads(line) for line in file.read_text().splitlines()]
    questions = formulation("equations", 3).questions(7, 4)
    assert written == [question.to_json() for question in questions]
    assert out.startswith(questions[0].prompt)
    assert f"Correct: {questions[0].answer}\nAcceptable: 0, 1, 2, 3" in out
    assert "6 more" in errors
    code, out, _ = command(capsys, "prompts", "relatives", "--n", 2, "--json")
    assert code == 0
    assert [len(question["acceptable"]) for question in json.loads(out)] == [16, 16]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prompts", "riddles"], "unknown formulation 'riddles'"),
        (["prompts", "kingdoms", "--steps", 4], "kingdoms: the number of steps cannot be chosen"),
        (["prompts", "equations", "--steps", 0], "n_steps is 0"),
        (["prompts", "equations", "--chains", 2, "--steps", 1, "--n", 50], "no more than 8 different questions"),
        (["prompts", "equations", "--out", "/proc/nowhere/q.jsonl"], "/proc/nowhere/q.jsonl: cannot be written"),
        (["llm"], "name a model with --model"),
        (["llm", "--model", "a/b", "--from-logs", "."], "leave --model out"),
        (["llm", "--from-logs", "/nowhere"], "/nowhere: no such folder"),
        (["llm", "--model", "mockllm/model", "--steps", "1-99999999"], "expected numbers from 1 to 100"),
        (["llm", "--model", "mockllm/model", "--steps", "5-3,1"], "expected numbers from 1 to 100"),
        (["llm", "--model", "mockllm/model", "--steps", "3-1"], "steps '3-1'; expected numbers from 1 to 100"),
        (["llm", "--model", "mockllm/model", "--steps", "many"], "steps 'many'"),
        (["llm", "--model", "mockllm/model", "--formulations", "riddles"], "unknown formulation 'riddles'"),
        (["llm", "--model", "nosuch/model", "--formulations", "kingdoms"], "nosuch"),
        (["llm", "--model", "hooked/one_layer", "--formulations", "kingdoms"], "one_layer: reads no text"),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments, named: str, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, out, errors = command(capsys, *arguments)
    assert code == 2
    assert out == ""
    line = errors.strip().splitlines()[-1]
    assert line.startswith("retrieval-interp: ")
    assert named in line
    assert "Traceback" not in errors
