"""A model directory with a small untrained transformer for the equations task."""

from pathlib import Path

from circuits.utils.files import write_atomically
from retrieval_interp.models.build import build
from retrieval_interp.models.checkpoints import save_tensors
from retrieval_interp.models.model_dir import CONFIG, WEIGHTS, config_json
from retrieval_interp.models.presets import Architecture
from retrieval_interp.tasks.equations import EquationsTask


def write_untrained(folder: Path) -> None:
    """Write the model directory; the weights are the same every time."""
    task = EquationsTask(n_steps=2)
    model = build(task, Architecture(n_layers=1, n_heads=2, d_model=16, d_head=8).config(task))
    write_atomically(folder / CONFIG, config_json(task, model.cfg, {}))
    save_tensors(folder / WEIGHTS, model.state_dict())
