import signal
from pathlib import Path

import pytest
from inspect_ai import eval as evaluate

from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen
from retrieval_interp.llm.tasks import TASKS
from retrieval_interp.prompts import formulation
from tests.llm_models import mock, run
from tests.refusals import assert_refused
from tests.solver import solve


def test_sampling_is_repeated_until_an_answer_is_acceptable(tmp_path: Path) -> None:
    right = formulation("equations").questions(1, 0)[0].answer
    log = run(mock(["I think that", "so it is 2", f"{right}."]), tmp_path, samples=1, attempts=5)
    assert log.samples is not None
    score = log.samples[0].scores["exact"]  # type: ignore[index]
    assert score.value == "C"
    assert score.metadata == {"attempts": 3}
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
    model = mock(["no answer", formulation("equations").questions(1, 0)[0].answer])
    log = evaluate(TASKS["equations"](samples=1), model=model, log_dir=str(tmp_path), display="none", cache=True)[0]
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
    _, missing = ask(tasks, [mock(sometimes)], tmp_path, quiet=True)
    assert missing is not None
    assert "the connection broke" in missing
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["asked"], row["right"], row["failed"]) == (5, 5, 1)
    tasks = chosen(["equations"], [2], samples=6, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(sometimes)], tmp_path, quiet=True)[1] is None
    assert len(asked) == 7
    row = results(logs_in(tmp_path)).iloc[0]
    assert (row["asked"], row["right"], row["failed"]) == (6, 6, 0)


def test_what_was_interrupted_is_not_called_done(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    asked: list[str] = []

    def stopped(question: str) -> str:
        asked.append(question)
        if len(asked) == 3:
            signal.raise_signal(signal.SIGINT)
        return solve(question)

    # As in a process of its own: an event loop stops for Ctrl-C only where nothing else has been told to see to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    tasks = chosen(["equations"], [2], samples=40, chains=4, seed=0, attempts=2)
    with pytest.raises(KeyboardInterrupt):
        ask(tasks, [mock(stopped)], tmp_path, quiet=True, max_samples=1)  # else all may be answered before it is heard
    assert len(asked) < 40


def test_the_questions_of_a_task_are_those_of_the_seed_with_their_chance_level() -> None:
    task = TASKS["relatives"](samples=3, seed=5)
    questions = formulation("relatives").questions(3, 5)
    assert [sample.input for sample in task.dataset] == [question.prompt for question in questions]
    assert task.metadata is not None
    assert task.metadata["chance"] == 1 / 16
    assert_refused("attempts is 0; expected", TASKS["equations"], samples=2, attempts=0)


def test_a_missing_key_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tasks = chosen(["kingdoms"], None, samples=2, chains=4, seed=0, attempts=2)
    assert_refused("OPENAI_API_KEY", ask, tasks, ["openai/gpt-4o"], tmp_path, quiet=True)
