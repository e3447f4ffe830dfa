"""A command that is killed at any moment, and run again until it ends, leaves what an undisturbed run leaves."""

import os
import random
import re
import signal
import sys
import traceback
from multiprocessing import get_context

import pytest
import torch
from safetensors import numpy as safetensors

from circuits.utils.files import PARTIAL
from retrieval_interp.cli import main
from retrieval_interp.models.model_dir import CONFIG, LOCK

BESIDE = 99  # the exit code if Ctrl-C came beside the command
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMES = re.compile(rb'"(training_)?seconds\w*": [0-9.e-]+')  # measured times in JSON


def train(folder):
    """Start or resume a training, in a process of its own that has imported everything."""

    def trained():
        torch.set_num_threads(1)  # threads do not survive a fork
        started = ["--resume"] if (folder / CONFIG).exists() else ["micro", "--set", "checkpoint_every=2"]
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            begun.set()
            main(["train", *started, "--no-compile", "--out", str(folder)])
        except KeyboardInterrupt as stopped:
            if main.__name__ in (frame.name for frame in traceback.extract_tb(stopped.__traceback__)):
                raise  # of the command itself it is an error: it ends with 130
            sys.exit(BESIDE)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    process, begun = get_context("fork").Process(target=trained), get_context("fork").Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # also in the process until the command runs
    process.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert begun.wait(300), "the training did not begin"
    return process


def left(folder):
    """The content of all files in a folder, without locks, measured times, and what is half-written."""
    whole = (one for one in folder.rglob("*") if one.is_file() and one.name != LOCK and one.suffix != PARTIAL)
    files = {path.name: path.read_bytes() for path in whole}
    return {name: read(name, raw.replace(str(folder).encode(), b"")) for name, raw in files.items()}


def read(name, raw):
    if name.endswith(".safetensors"):
        return {key: tensor.tobytes() for key, tensor in safetensors.load(raw).items()}
    return TIMES.sub(b"", raw)


def being_written(folder):
    return {name for _, _, names in os.walk(folder) for name in names if name.endswith(PARTIAL)}


@pytest.mark.slow
def test_a_training_killed_at_random_moments_ends_like_one_that_nobody_killed(tmp_path, micro_presets, interruptible):
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    (whole := train(undisturbed)).join()
    assert whole.exitcode == 0
    chance, landed, beside, abandoned = random.Random(0), [], 0, set()
    while len(landed) < len(SIGNALS):
        (process := train(killed)).join(chance.uniform(0, 1))
        while len(landed) % 2 and process.is_alive() and not being_written(killed) - abandoned:  # while writing
            process.join(0.001)
        if process.is_alive():
            os.kill(process.pid, SIGNALS[len(landed)])
        process.join(300)
        abandoned = being_written(killed) if process.exitcode == -signal.SIGKILL else abandoned
        assert being_written(killed) <= abandoned  # only SIGKILL leaves what is half-written
        if process.exitcode in (130, -SIGNALS[len(landed)]):
            landed.append(process.exitcode)
        elif process.exitcode == BESIDE:
            beside += 1
            assert beside < 5
        else:  # it ended before the signal
            assert process.exitcode == 0
            assert left(killed).keys() == left(undisturbed).keys()
            killed = tmp_path / f"killed {len(landed)}"
    (last := train(killed)).join(300)
    assert last.exitcode == 0
    assert left(killed) == left(undisturbed)
