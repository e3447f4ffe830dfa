import threading

import pytest
import torch

from circuits import Circuit, Head, OneHot, Uniform, evaluate
from circuits import evaluation as evaluation_module
from circuits.cores import on_all_cores
from circuits.evaluation import pieces

CPU = torch.device("cpu")


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_pieces_run_at_once_and_are_told_in_their_order(three_threads):
    all_there = threading.Barrier(3, timeout=60)  # nobody goes on before three are at work

    def work(item: int) -> tuple[int, int]:
        all_there.wait()
        return 10 * item, torch.get_num_threads()

    told = []
    on_all_cores(work, range(6), lambda item, result: told.append((item, result)), CPU)
    assert told == [(item, (10 * item, 1)) for item in range(6)]
    assert torch.get_num_threads() == 3


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


def test_losses_are_the_same_on_one_core_and_on_three(random_model, task, monkeypatch):
    """Heads that are left free are replaced by hooks on the one model that all threads share."""
    monkeypatch.setattr(evaluation_module, "POSITIONS_AT_ONCE", 2 * task.n_positions)
    examples = task.examples(12, seed=1)
    path = OneHot({"query": "pair1.second"})
    circuits = [Circuit(), Circuit({Head(0, 0): path}), Circuit({Head(0, 0): Uniform()}), Circuit({Head(1, 0): path})]
    assert len([*pieces(random_model, task, examples, circuits)]) > 3
    before = torch.get_num_threads()
    losses = []
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        losses.append(evaluate(random_model, task, examples, circuits))
    torch.set_num_threads(before)
    torch.testing.assert_close(losses[1], losses[0])
