import pytest

from circuits import BadInput
from circuits.files import check_writable, write_together


def test_of_several_files_none_is_written_if_one_cannot_be(tmp_path):
    (tmp_path / "a").write_text("old")
    too_long = "x" * 250  # fits as a name, but not with what a temporary file adds
    with pytest.raises(BadInput, match="cannot be written"):
        write_together({tmp_path / "a": "new", tmp_path / too_long: "new"})
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_several_files_are_written_into_a_new_folder(tmp_path):
    write_together({tmp_path / "new" / name: name for name in "ab"})
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == {"a": "a", "b": "b"}


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path):
    check_writable(tmp_path / "new" / "file")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="is a folder"):
        check_writable(tmp_path)
