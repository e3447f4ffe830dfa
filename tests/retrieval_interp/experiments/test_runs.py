import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from threading import Thread

import pytest

from retrieval_interp.experiments import runs
from retrieval_interp.experiments.runs import RUNS, all_runs, read_runs
from retrieval_interp.locks import LOCKS


@dataclass(frozen=True)
class Double:
    of: int
    by: str


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "WAIT", 0.01)
    return tmp_path


def doubled(folder, wanted, by="this one", before=lambda key: None):
    """Train 'runs' of a few whole numbers in a folder."""
    made, shares = [], []

    def train(key, progress):
        before(key)
        progress(0.5)
        made.append(key)
        return Double(key, by)

    def read():
        return {run.of: run for run in read_runs(folder / RUNS, Double)}

    return [run.by for run in all_runs(wanted, read, folder / RUNS, train, shares.append)], made, shares


def test_runs_come_in_their_order_and_none_is_repeated(folder):
    assert doubled(folder, [2, 1]) == (["this one"] * 2, [2, 1], [0.25, 0.75, 1.0])
    found, made, shares = doubled(folder, [1, 2, 3], by="a later one")
    assert (found, made) == (["this one", "this one", "a later one"], [3])
    assert shares == pytest.approx([2.5 / 3, 1.0])


def test_what_another_process_trains_is_waited_for_and_not_trained_again(folder):
    """Two work on one folder: while one trains 1, the other takes 2, and then waits for 1."""
    found = []
    other = Thread(target=lambda: found.append(doubled(folder, [1, 2], by="the other one")))

    def start_the_other(key):
        if key == 1:
            other.start()
            while not (trained := read_runs(folder / RUNS, Double)):
                assert other.is_alive()
                time.sleep(0.01)
            assert [run.of for run in trained] == [2]

    mine, made, _ = doubled(folder, [1, 2], before=start_the_other)
    other.join(timeout=60)
    ((others, others_made, _),) = found
    assert (made, others_made) == ([1], [2])
    assert mine == others == ["this one", "the other one"]
    assert len((folder / RUNS).read_text().splitlines()) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from retrieval_interp.experiments.runs import all_runs
all_runs([1], dict, Path(sys.argv[1]), lambda key, share: os.kill(os.getpid(), signal.SIGKILL), print)
"""


def test_what_a_killed_process_had_claimed_is_trained_again(folder):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder / RUNS)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [*(folder / LOCKS).iterdir()]
    assert doubled(folder, [1])[1] == [1]
