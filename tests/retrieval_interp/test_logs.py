import pytest

from circuits import BadInput
from retrieval_interp.logs import append_line
from tests.limits import files_of_at_most


def test_on_a_full_disk_a_log_keeps_its_whole_lines_and_goes_on_when_there_is_room(tmp_path):
    log = tmp_path / "log"
    append_line(log, "first")
    with files_of_at_most(10), pytest.raises(BadInput, match=r"log: cannot be written \("):
        append_line(log, "too long a line")
    assert log.read_text() == "first\n"
    append_line(log, "second")
    assert log.read_text() == "first\nsecond\n"


@pytest.mark.parametrize("whole", ["", "first\n", "first\nsecond\n"])
def test_a_line_that_was_cut_off_gives_way_to_the_next(whole, tmp_path):
    log = tmp_path / "log"
    log.write_text(whole + "cut of")
    append_line(log, "next")
    assert log.read_text() == whole + "next\n"
