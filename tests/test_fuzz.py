"""A few of the damaged files of ``fuzz`` for every reader, and those by which something was found."""

import gc
import signal
from mmap import mmap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.robustness import watched
from benchmarks.robustness.fuzz import Tried, damaged
from benchmarks.robustness.readers import FOUND_TEXT, READERS, RESULT_TEXT, inspect_log
from circuits import BadInput, load_circuit
from retrieval_interp.models import presets


@pytest.fixture(autouse=True)
def micro_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", None)  # the readers put theirs in its place
    before = signal.signal(signal.SIGALRM, watched.alarmed)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_one_clear_line_and_nothing_else(name, tmp_path):
    tried = Tried(READERS[name], tmp_path)

    @settings(max_examples=40, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(damaged(READERS[name]))
    def give(content):
        tried(content)

    give()
    assert tried.faults == {}
    assert tried.refused > 0


# Three thousand of them once kept the parser busy for ten seconds; a hundred thousand are too much for its stack.
@pytest.mark.parametrize("opening", ['{"a": ', "[", "- ", "{a: "])
def test_nothing_is_nested_too_deeply_to_be_read(opening, tmp_path):
    path = tmp_path / "circuit.yaml"
    path.write_text("heads: " + "\n" * (opening == "- ") + opening * 100_000)
    with pytest.raises(BadInput, match="nested too deeply"):
        load_circuit(path)


LINE = '{{"step": {}, "loss": {}, "components": {{"x1": 0.5}}, "lr": 0.1}}\n'
ROW = "step,L0H0 a -> b\n80,0.1\n{},0.9\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log", LINE.format("1e999", 0.1)),
        ("log", LINE.format(20, 10**400)),
        ("table of attention", ROW.format(10**20)),
        ("table of attention", ROW.format("inf")),
        ("result", RESULT_TEXT.decode().replace("0.1", str(10**400))),
        ("result", RESULT_TEXT.decode().replace("20", str(10**400))),
        ("result", RESULT_TEXT.decode().replace("cpu", "\\ud800")),
        ("finding", FOUND_TEXT.decode().replace("0.05", str(10**400))),
    ],
)
def test_what_is_no_number_or_text_that_could_be_meant_is_named(name, content, tmp_path):
    tried = Tried(READERS[name], tmp_path)
    tried(content.encode())
    assert (tried.refused, tried.faults) == (1, {})


def test_a_number_of_thousands_of_digits_does_not_end_the_process(tmp_path):
    tried = Tried(READERS["log of Inspect"], tmp_path)
    tried(inspect_log("json").replace(b'"version": 2', b'"version": ' + b"9" * 5000, 1))
    assert (tried.refused, tried.faults) == (1, {})


@pytest.mark.slow
def test_what_raises_hangs_or_fills_the_memory_is_told(monkeypatch):
    monkeypatch.setattr(watched, "MEMORY", 16)
    gc.collect()  # what earlier tests have left does not make room in the middle
    hurried, patient = watched.Watched(patience=1), watched.Watched()
    with hurried.watching("hangs"):
        while True:
            pass
    with patient.watching("raises"):
        raise ValueError
    with patient.watching("fills"), mmap(-1, 64 * 2**20) as pages:  # new pages, as in the next test
        pages[:: 2**12] = b"x" * 2**14
    assert hurried.faults == {"TooLong at watched.py:alarmed": "hangs"}
    assert [*patient.faults.values()] == ["raises", "fills"]
    assert patient.most == pytest.approx(64, abs=2)


def test_what_fills_the_memory_little_by_little_is_told(monkeypatch):
    monkeypatch.setattr(watched, "MEMORY", 32)
    leaking, kept = watched.Watched(), []
    gc.collect()  # what earlier tests have left does not make room in the middle
    for number in range(6):
        with leaking.watching(number):
            # Pages of its own: bytes would go where earlier tests have left room, and nothing would grow.
            kept.append(mmap(-1, 8 * 2**20))
            kept[-1].write(b"x" * len(kept[-1]))
    assert leaking.most < 32
    assert [*leaking.faults] == ["more than 32 MiB"]


@given(st.text())
def test_a_message_is_one_line(text):
    assert "\n" not in str(BadInput(f"{text}\n{text}"))
