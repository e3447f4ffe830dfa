import os
from pathlib import Path

import pytest
import torch

from circuits import BadInput, attention_viewer, load_circuit, save_circuit, validate
from circuits.utils.files import check_writable, to_path, write_atomically, write_together
from circuits.utils.kept import key_of
from tests.limits import files_of_at_most
from tests.refusals import assert_refused


def test_on_a_full_disk_the_old_file_stays_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("old")
    with files_of_at_most(1000), pytest.raises(BadInput, match=r"file: cannot be written \("):
        write_atomically(tmp_path / "file", "x" * 5000)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_what_a_killed_writer_left_is_removed_and_what_another_still_writes_is_not(tmp_path):
    abandoned, held, foreign = (tmp_path / name for name in (".file.1.partial", ".file.2.partial", ".files.3.partial"))
    for path in (abandoned, held, foreign):
        path.write_text("begun")
    for path in (abandoned, foreign):
        os.utime(path, (0, 0))
    write_atomically(tmp_path / "file", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"file", held.name, foreign.name}
    assert (tmp_path / "file").read_text() == "new"


def test_of_several_files_none_is_written_if_one_cannot_be(tmp_path):
    (tmp_path / "a").write_text("old")
    too_long = "x" * 250  # fits as a name, but not with what a temporary file adds
    assert_refused("cannot be written", write_together, {tmp_path / "a": "new", tmp_path / too_long: "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_several_files_are_written_into_a_new_folder(tmp_path):
    write_together({tmp_path / "new" / name: name for name in "ab"})
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {"a": "a", "b": "b"}


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path):
    check_writable(tmp_path / "new" / "file")
    assert list(tmp_path.iterdir()) == []
    assert_refused("is a folder", check_writable, tmp_path)


def test_a_tilde_is_the_home_folder_for_circuits_reports_and_viewers(home, model, task, circuit):
    save_circuit(circuit, "~/new/circuit.yaml")
    assert load_circuit("~/new/circuit.yaml") == load_circuit(home / "new" / "circuit.yaml") == circuit
    report = validate(model, task, circuit, n_examples=8)
    assert report.save(Path("~/report")) == home / "report" / "report.html"
    assert len([*(home / "report").iterdir()]) == 3
    attention_viewer(model, task.examples(1, 0)).save("~/viewer.html")
    assert (home / "viewer.html").is_file()


def test_a_name_that_only_begins_with_a_tilde_is_a_name():
    assert to_path("~no user has this name") == Path("~no user has this name")
    assert to_path("a/~/b") == Path("a/~/b")


def test_inputs_in_half_precision_name_what_is_measured_on_them():
    assert key_of(torch.zeros(2, 3, dtype=torch.bfloat16)) != key_of(torch.ones(2, 3, dtype=torch.bfloat16))
