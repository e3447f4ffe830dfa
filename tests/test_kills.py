"""A training that is killed while it writes, and run again until it ends, leaves what an undisturbed run leaves."""

import re
from multiprocessing import get_context

import pytest
from safetensors import numpy as safetensors

from circuits.utils.files import PARTIAL
from retrieval_interp.cli import main
from retrieval_interp.models.model_dir import CONFIG, LOCK

TIMES = re.compile(rb'"(training_)?seconds\w*": [0-9.e-]+')  # measured times in JSON


def train(folder):
    started = ["--resume"] if (folder / CONFIG).exists() else ["micro", "--set", "checkpoint_every=2"]
    command = ["train", *started, "--no-compile", "--out", str(folder)]
    process = get_context("fork").Process(target=main, args=(command,))
    process.start()
    return process


def left(folder):
    files = {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file() and one.suffix != PARTIAL}
    texts = {
        name: TIMES.sub(b"", raw.replace(str(folder).encode(), b"")) for name, raw in files.items() if name != LOCK
    }
    weights = {name: safetensors.load(raw) for name, raw in files.items() if name.endswith(".safetensors")}
    return texts | {name: {key: one.tobytes() for key, one in made.items()} for name, made in weights.items()}


@pytest.mark.slow
def test_a_training_killed_while_it_writes_ends_like_one_that_nobody_killed(tmp_path, micro_presets):
    (whole := train(tmp_path / "whole")).join()
    killed, landed = tmp_path / "killed", []
    while len(landed) < 2:
        before, process = {*killed.rglob(f"*{PARTIAL}")}, train(killed)
        while process.is_alive() and not {*killed.rglob(f"*{PARTIAL}")} - before:
            process.join(0.001)
        (process.kill, process.terminate)[len(landed)]()
        process.join(300)
        landed += [process.exitcode] * (process.exitcode != 0)
        killed = killed if process.exitcode else tmp_path / f"{killed.name} again"  # it had ended
    (last := train(killed)).join(300)
    assert [whole.exitcode, last.exitcode, *landed] in ([0, 0, -9, -15], [0, 0, -9, 130])  # a run that trains saves
    assert left(killed) == left(tmp_path / "whole")
