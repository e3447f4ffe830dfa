import subprocess
import sys
import threading

import pytest
import torch

from circuits import Circuit, FixedPattern, Head, OneHot, Uniform, evaluate, validate
from circuits.ablation.evaluation import Recent, pieces
from circuits.model import batching
from circuits.utils.cores import on_all_cores, pieces_at_once

CPU = torch.device("cpu")


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_pieces_run_at_once_and_are_told_in_their_order(three_threads):
    all_there = threading.Barrier(3, timeout=60)  # nobody goes on before three are at work

    def work(item: int) -> tuple[int, int, int]:
        all_there.wait()
        return 10 * item, torch.get_num_threads(), pieces_at_once(CPU)

    told = []
    on_all_cores(work, range(6), lambda item, result: told.append((item, result)), CPU)
    assert told == [(item, (10 * item, 1, 3)) for item in range(6)]
    assert torch.get_num_threads() == pieces_at_once(CPU) == 3


def test_pieces_that_run_at_once_share_the_memory(three_threads, random_model, task, monkeypatch):
    example = random_model.cfg.n_heads * task.n_positions**2
    monkeypatch.setattr(batching, "ENTRIES_AT_ONCE", 12 * example)
    begun, kept, shares = Recent.__init__, set(), []

    def noted(recent: Recent, most: int) -> None:
        kept.add(most)
        begun(recent, most)

    monkeypatch.setattr(Recent, "__init__", noted)
    evaluate(random_model, task, task.examples(24, seed=1), [Circuit()], progress=shares.append)
    assert kept == {4 * example}
    assert len(shares) == 6  # of four examples each


@pytest.mark.parametrize("fails", ["work", "done"])
def test_a_failure_ends_the_work_and_leaves_pytorch_its_threads(three_threads, fails):
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        if fails == "work" and item == 2:
            raise KeyboardInterrupt
        return item

    def done(item: int, result: int) -> None:
        if fails == "done" and item == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_all_cores(work, range(100), done, CPU)
    assert len(begun) < 100
    assert torch.get_num_threads() == 3


def test_autocast_holds_in_every_thread(three_threads):
    told = []
    work = lambda item: torch.ones(2, 2) @ torch.ones(2, 2)  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        on_all_cores(work, range(3), lambda item, result: told.append(result.dtype), CPU)
    on_all_cores(work, range(1), lambda item, result: told.append(result.dtype), CPU)
    assert told == [torch.bfloat16] * 3 + [torch.float32]


def test_a_fixed_pattern_beside_a_free_head_changes_what_is_above(random_model, task):
    examples, above = task.examples(4, seed=1), {Head(1, 0): Uniform()}
    fixed = FixedPattern(torch.eye(task.n_positions))
    circuits = [Circuit(above), Circuit({Head(0, 0): fixed, **above})]
    together = evaluate(random_model, task, examples, circuits)
    alone = torch.cat([evaluate(random_model, task, examples, [circuit]) for circuit in circuits])
    torch.testing.assert_close(together, alone)


def test_a_validation_finds_the_same_on_one_core_and_on_three(three_threads, model, problem, circuit):
    reports = []
    for n_threads in (3, 1):
        torch.set_num_threads(n_threads)
        reports.append(validate(model, problem, circuit, n_examples=64).to_json())
    assert reports[0] == reports[1]


INTERRUPTED = """
import os, signal, sys, threading, time
import torch
from circuits.utils.cores import on_all_cores

sent = threading.Event()

def send():
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
    sent.set()

def work(item):
    if item == 1:
        threading.Thread(target=send).start()
    while not sent.is_set():
        torch.ones(100, 100) @ torch.ones(100, 100)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background is born without
torch.set_num_threads(3)
try:
    on_all_cores(work, range(100), lambda item, result: None, torch.device("cpu"))
except KeyboardInterrupt:
    print(torch.get_num_threads())
"""


@pytest.mark.slow
def test_ctrl_c_again_and_again_waits_for_what_is_under_way():
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


def test_losses_are_the_same_on_one_core_and_on_three(three_threads, random_model, task, monkeypatch):
    """Heads that are left free are replaced by hooks on the one model that all threads share."""
    monkeypatch.setattr(batching, "POSITIONS_AT_ONCE", 2 * task.n_positions)
    examples = task.examples(12, seed=1)
    path = OneHot({"query": "pair1.second"})
    circuits = [Circuit(), Circuit({Head(0, 0): path}), Circuit({Head(0, 0): Uniform()}), Circuit({Head(1, 0): path})]
    assert len([*pieces(random_model, task, examples, circuits)]) > 3
    losses = []
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        losses.append(evaluate(random_model, task, examples, circuits))
    torch.testing.assert_close(losses[1], losses[0])
