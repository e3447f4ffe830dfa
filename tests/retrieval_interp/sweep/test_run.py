import json
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from retrieval_interp.models import presets
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.local import local
from retrieval_interp.sweep.plan import Plan, Run
from retrieval_interp.sweep.run import TRIES, JobProgress, sweep
from retrieval_interp.sweep.store import FAILURES, Store, Trained
from tests.sweeps import MICRO, instant, trained

pytestmark = pytest.mark.usefixtures("micro_presets")

PLAN = Plan("mine", ("micro", "other"), 3)


def test_every_run_is_made_once_and_a_second_sweep_makes_what_is_missing(tmp_path: Path) -> None:
    made: list[Run] = []

    def noted(jobs: Iterable[Job], progress: JobProgress) -> Iterator[tuple[Job, Trained | Failure]]:
        for job, outcome in instant(jobs, progress):
            made.append(job.run)
            yield job, outcome

    store, shares = Store(tmp_path / "store"), list[float]()
    assert sweep(Plan("mine", ("micro",), 2).runs, store, noted, shares.append) == []
    assert sweep(PLAN.runs, store, noted, shares.append) == []
    assert sorted(map(str, made)) == sorted(map(str, PLAN.runs))
    assert shares[-1] == 1.0
    assert [store.result(run).run for run in PLAN.runs] == [*PLAN.runs]


def test_a_failing_run_is_written_down_and_tried_again_but_not_for_ever(tmp_path: Path) -> None:
    bad = Run("micro", 1)

    def failing(jobs: Iterable[Job], progress: JobProgress) -> Iterator[tuple[Job, Trained | Failure]]:
        for job in jobs:
            yield job, Failure(bad, "out of luck") if job.run == bad else trained(job.run)

    store = Store(tmp_path / "store")
    assert sweep(PLAN.runs, store, failing, lambda share: None) == [Failure(bad, "out of luck")]
    assert [store.has(run) for run in PLAN.runs] == [run != bad for run in PLAN.runs]
    lines = [json.loads(line) for line in (store.folder / FAILURES).read_text().splitlines()]
    assert lines == [{"preset": "micro", "seed": 1, "reason": "out of luck"}] * TRIES
    assert sweep(PLAN.runs, store, instant, lambda share: None) == []


def test_whatever_stops_a_job_stops_no_other() -> None:
    def broken(job: Job, progress: object) -> Trained | Failure:
        if job.run.preset == "micro":
            raise RuntimeError("no memory left\nand more")
        return trained(job.run)

    jobs = [Job(Run("micro", 0), MICRO), Job(Run("other", 0), presets.preset("other"))]
    (_, failed), (_, made) = local(jobs, lambda job, share: None, broken)
    assert failed == Failure(Run("micro", 0), "RuntimeError: no memory left")
    assert isinstance(made, Trained)


def slow(jobs: Iterable[Job], progress: JobProgress) -> Iterator[tuple[Job, Trained | Failure]]:
    """An engine that takes a while, so that two sweeps meet."""
    for job in jobs:
        time.sleep(0.1)
        yield job, trained(job.run)


def swept_elsewhere(folder: Path, made: "multiprocessing.Queue[str]") -> None:
    """A sweep in another process; tells what it made itself."""

    def noted(jobs: Iterable[Job], progress: JobProgress) -> Iterator[tuple[Job, Trained | Failure]]:
        for job, outcome in slow(jobs, progress):
            made.put(str(job.run))
            yield job, outcome

    sweep(Plan("mine", ("micro", "other"), 20).runs, Store(folder), noted, lambda share: None)


@pytest.mark.slow
def test_two_sweeps_on_one_store_share_the_work_and_both_wait_for_all_of_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # another would first import everything again
    made = context.Queue()
    both = [context.Process(target=swept_elsewhere, args=(tmp_path / "store", made)) for _ in range(2)]
    for process in both:
        process.start()
    told = [made.get(timeout=600) for _ in range(40)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert sorted(told) == sorted(map(str, Plan("mine", ("micro", "other"), 20).runs))
    assert made.empty()
