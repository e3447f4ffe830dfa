"""Files that the toolkit writes with what the engine gives it."""

import pytest
import torch

from circuits import BadInput
from retrieval_interp import data_folder, load, load_facts, read_runs, train
from retrieval_interp.models.checkpoints import save_tensors
from tests.command import run
from tests.limits import files_of_at_most


def test_on_a_full_disk_the_old_weights_stay_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("old")
    with files_of_at_most(1000), pytest.raises(BadInput, match=r"file: cannot be written \("):
        save_tensors(tmp_path / "file", {"x": torch.zeros(5000)})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_a_tilde_is_the_home_folder_for_runs_and_tables(home, micro_presets):
    trained = train("micro", "~/run", device="cpu", compiled=False).model
    assert (home / "run" / "model.safetensors").is_file()
    assert torch.equal(load("~/run").model.embed.W_E, trained.embed.W_E)
    (home / "data").symlink_to(data_folder())
    assert load_facts("~/data/facts/functions.yaml") == load_facts(data_folder() / "facts" / "functions.yaml")
    assert not read_runs("~/data/sweeps/figure4_laptop/runs.csv").empty


def test_a_tilde_is_the_home_folder_on_the_command_line_with_and_without_an_equals_sign(home, capsys):
    for arguments in (["--out=~/depth"], ["--out", "~/depth"]):
        code, out, _ = run(capsys, "theory", "depth", *arguments)
        assert (code, str(home / "depth") in out) == (0, True)
        (home / "depth" / "depth.html").unlink()
