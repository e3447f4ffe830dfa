"""The one call that trains a preset."""

import pytest

from circuits import BadInput
from retrieval_interp import preset, train
from retrieval_interp.training import training
from tests.sweeps import MICRO

pytestmark = pytest.mark.usefixtures("micro_presets")


def test_keywords_change_task_architecture_and_recipe():
    changed = preset("micro", n_layers=1, steps=30, n_chains=3)
    assert changed == MICRO.changed(n_layers=1, steps=30, n_chains=3)
    assert (changed.architecture.n_layers, changed.recipe.steps, changed.task.n_chains) == (1, 30, 3)
    with pytest.raises(BadInput, match="no field 'frob'; expected one of steps, "):
        preset("micro", frob=1)
    with pytest.raises(BadInput, match="n_layers is 0"):
        preset("micro", n_layers=0)
    with pytest.raises(BadInput, match="n_chains is 'two'"):
        preset("micro", n_chains="two")


@pytest.mark.slow
def test_a_run_that_is_there_is_loaded_and_another_one_is_refused(tmp_path, monkeypatch):
    changes = {"n_layers": 1, "steps": 20}
    model, task, circuit = train("micro", tmp_path / "run", device="cpu", compiled=False, **changes)
    assert (model.cfg.n_layers, task, circuit) == (1, MICRO.task, None)
    monkeypatch.setattr(training, "train_run", lambda *_: pytest.fail("nothing is to be trained"))
    again = train("micro", tmp_path / "run", device="cpu", **changes)
    assert (again.model.W_E == model.W_E).all()
    for other in ({"steps": 20}, {**changes, "seed": 5}, {**changes, "lr": 0.1}):
        with pytest.raises(BadInput, match="choose another folder"):
            train("micro", tmp_path / "run", device="cpu", **other)
    config = training.read_config(tmp_path / "run")
    command = training.train_command("micro", config, tmp_path / "run")
    assert command == "retrieval-interp train micro --seed 0 --steps 20 --set n_layers=1"
