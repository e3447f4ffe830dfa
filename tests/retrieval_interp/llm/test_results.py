from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from inspect_ai.log import write_eval_log

from retrieval_interp.llm.page import accuracy_figure
from retrieval_interp.llm.results import logs_in, results
from retrieval_interp.llm.run import ask, chosen, set_damaged_aside
from retrieval_interp.results import Interval
from tests.llm_models import mock, run, wrong
from tests.refusals import assert_refused
from tests.solver import solve


def test_other_options_are_other_results_and_of_the_same_the_newest_counts(tmp_path: Path) -> None:
    folder = tmp_path / "logs#1? %20x"
    for attempts, model in ((2, mock(solve)), (3, mock(wrong)), (2, mock(wrong))):
        run(model, folder, samples=4, attempts=attempts)
    table = results(logs_in(folder))
    assert table.set_index("attempts")["right"].to_dict() == {2: 0, 3: 0}
    assert table["asked"].tolist() == [4, 4]
    names = [trace.name for trace in accuracy_figure(table).data]
    assert names == ["mockllm/model, attempts 2", "mockllm/model, attempts 3", "chance"]


def test_results_show_every_task_with_wilsons_interval(tmp_path: Path) -> None:
    tasks = chosen(["relatives", "equations"], [3, 1], samples=4, chains=4, seed=0, attempts=2)
    assert ask(tasks, [mock(solve)], tmp_path, quiet=True)[1] is None
    table = results(logs_in(tmp_path))
    assert table["formulation"].tolist() == ["equations", "equations", "relatives"]
    assert table["steps"].tolist()[:2] == [1, 3]
    assert [len(chosen(["lives_with"], steps, samples=4)) for steps in ([3, 1], None)] == [2, 1]
    assert table["accuracy"].tolist() == [1.0, 1.0, 1.0]
    assert table["low"].tolist() == [Interval.of_share(4, 4).low] * 3
    assert table["chance"].tolist() == [0.25, 0.25, 0.0625]
    bars, chance = accuracy_figure(table).data
    assert [*chance.y] == table["chance"].tolist()
    assert [*bars.error_y.arrayminus] == (table["accuracy"] - table["low"]).tolist()


def test_folders_without_logs_and_damaged_logs_are_named(tmp_path: Path) -> None:
    assert_refused("no such folder", logs_in, tmp_path / "nowhere")
    assert_refused("logs is of these tasks", results, logs_in(tmp_path))
    run(mock(solve), tmp_path, samples=2)
    log = next(tmp_path.glob("*.eval"))
    log.write_bytes(log.read_bytes()[:300])
    said: list[str] = []
    assert_refused("logs is of these tasks", results, [log], said.append)
    assert said[0].startswith(f"{log}: left out, not a complete log of Inspect")
    other = tmp_path / "2026-01-01T00-00-00_equations_x.json"
    other.write_text('{"version": 2}')
    aside = [path.with_name(f"{path.name}.damaged") for path in sorted([log, other])]
    assert set_damaged_aside(tmp_path) == aside
    assert set_damaged_aside(tmp_path) == []


def test_a_log_that_would_fill_the_memory_or_describes_no_task_is_left_out(tmp_path: Path) -> None:
    log = run(mock(solve), tmp_path, samples=1)
    (path,) = logs_in(tmp_path)
    assert log.eval.metadata is not None
    own = {**log.eval.metadata}
    for odd in ({"steps": [2]}, {"steps": "many"}, {"chains": 10**30}, {"seed": {}}, {"attempts": 0.5}):
        log.eval.metadata.update({**own, **odd})
        write_eval_log(log, log.location)
        assert_refused("none of 1 logs is of these tasks", results, [path])
    with ZipFile(path, "a", ZIP_DEFLATED) as packed, packed.open("summaries/9.json", "w") as bomb:
        for _ in range(257):  # a quarter of a MiB when packed
            bomb.write(bytes(2**20))
    said: list[str] = []
    assert_refused("logs is of these tasks", results, [path], said.append)
    assert said[0].endswith("bytes would be read at once; expected at most 268435456)")
