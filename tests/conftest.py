"""Shared ground truth: a model whose circuit was written by hand, and small tasks that finish fast.

What computes is imported where it is needed: the process that hands the tests out to the others reads this too.
"""

import tests.annotations  # noqa: F401, I001  before everything else

import signal
from importlib import import_module

import pytest
from hypothesis import settings

from retrieval_interp.__main__ import wait_passively

from retrieval_interp.models import presets
from retrieval_interp.models.presets import Architecture

wait_passively()
settings.register_profile("patient", deadline=None)  # machines are noisy: nothing is said of time here
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


def handmade(name, **arguments):
    """A fixture: what a class or function of tests/handmade.py returns, made once."""
    return pytest.fixture(scope="session")(lambda: getattr(import_module("tests.handmade"), name)(**arguments))


task, model, circuit = map(handmade, ("InductionTask", "induction_model", "induction_circuit"))
chains = handmade("ChainTask", n_steps=2, n_chains=2)


@pytest.fixture
def drawn(task, monkeypatch):
    """The numbers and seeds of the examples that are drawn of the handmade model's task, as they are drawn."""
    examples, drawn = type(task).examples, []
    monkeypatch.setattr(type(task), "examples", lambda own, *asked: (drawn.append(asked), examples(own, *asked))[1])
    return drawn


@pytest.fixture(scope="session")
def random_model(chains):
    from tests.handmade import random_transformer

    return random_transformer(chains)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """A model directory with a transformer that reads equations and has learned nothing."""
    from retrieval_interp.models.build import build
    from retrieval_interp.models.checkpoints import save_tensors
    from retrieval_interp.models.model_dir import CONFIG, WEIGHTS, config_json
    from retrieval_interp.tasks.equations import EquationsTask

    folder, task = tmp_path_factory.mktemp("untrained"), EquationsTask(n_steps=2)
    model = build(task, Architecture(n_layers=1, n_heads=2, d_model=16, d_head=8).config(task))
    (folder / CONFIG).write_text(config_json(task, model.cfg, {}))
    save_tensors(folder / WEIGHTS, model.state_dict())
    return folder


@pytest.fixture
def interruptible():
    """Ctrl-C is heard here and in what is forked, also where these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def micro_presets(monkeypatch):
    """Two presets that are trained in a second, without a compiler."""
    from retrieval_interp.training.training_step import TrainingStep
    from tests.sweeps import MICRO, OTHER

    monkeypatch.setitem(presets.PRESETS, "micro", MICRO)
    monkeypatch.setitem(presets.PRESETS, "other", OTHER)
    monkeypatch.setattr(TrainingStep, "compile", lambda self: None)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder, and elsewhere an empty current folder, which must stay empty."""
    for name in ("home", "current"):
        (tmp_path / name).mkdir()
    for variable in ("HOME", "USERPROFILE"):  # the second on Windows
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "current")
    yield tmp_path / "home"
    assert list((tmp_path / "current").iterdir()) == []
