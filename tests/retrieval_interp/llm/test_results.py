from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from inspect_ai.log import write_eval_log

from circuits import BadInput
from circuits.losses.interval import Interval
from retrieval_interp.llm.page import accuracy_figure, by_formulation, with_series, write_accuracy
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen, set_damaged_aside
from tests.llm_models import mock, run, wrong
from tests.solver import solve


def test_other_options_are_other_results_and_of_the_same_the_newest_counts(tmp_path: Path) -> None:
    for attempts, model in ((2, mock(solve)), (3, mock(wrong)), (2, mock(wrong))):
        run(model, tmp_path, samples=4, attempts=attempts)
    table = results(logs_in(tmp_path)).set_index("attempts")
    assert table["right"].to_dict() == {2: 0, 3: 0}
    assert table["asked"].to_dict() == {2: 4, 3: 4}


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


def test_folders_without_logs_and_damaged_logs_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        logs_in(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="logs is of these tasks"):
        results(logs_in(tmp_path))
    run(mock(solve), tmp_path, samples=2)
    log = next(tmp_path.glob("*.eval"))
    log.write_bytes(log.read_bytes()[:300])
    said: list[str] = []
    with pytest.raises(BadInput, match="logs is of these tasks"):
        results([log], said.append)
    assert said[0].startswith(f"{log}: left out, not a complete log of Inspect")
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
    with pytest.raises(BadInput, match="logs is of these tasks"):
        results([log], said.append)
    assert said[0].endswith("bytes would be read at once; expected at most 268435456)")


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
    with pytest.raises(BadInput, match="logs is of these tasks"):
        results(logs_in(tmp_path), said.append)
    assert len(said) == 1
