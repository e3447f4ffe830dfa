"""Damaged files of every kind that the toolkit reads: a reader may refuse one in one line, and do nothing else."""

import re
import signal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import BadInput, load_circuit
from retrieval_interp.models import presets
from tests.limits import MIB, peak, reset
from tests.readers import READERS, inspect_log
from tests.refusals import assert_refused

PATIENCE, MEMORY = 10, 1024  # most seconds and most MiB for one file
WORD = re.compile(rb"[\w.+-]+")
TOKENS = (
    *(b"", b" ", b"\n", b"\t", b"\0", b"\xff", b"\xc3", b"- ", b"---\n", b"<<: *a"),
    b"!!python/object/apply:os.system [ls]",
    *b": , \" ' # [ ] { } | % null true no ~ &a *a = ... !!binary 2024-13-45".split(),
    *b"0 -1 1.5 NaN -Infinity 1e999 99999999999999999999".split(),
    *b"__proto__ ../../x /etc/passwd L999999H999999 L0H0 query elsewhere x1 step <script>".split(),
    *("é".encode(), "𝟜".encode(), "\u202e".encode(), "\ud800".encode("utf-8", "surrogatepass")),
    *(b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"- " * 3000),
)


class TooLong(BaseException):
    """A file took too long; not an Exception, so that no reader catches it."""


def alarmed(number, frame):
    raise TooLong


@pytest.fixture(autouse=True)
def micro_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "micro", None)  # the readers put theirs in its place
    before = signal.signal(signal.SIGALRM, alarmed)
    yield
    signal.signal(signal.SIGALRM, before)


@st.composite
def damaged(draw, whole):
    """A valid file that is changed in a few places or cut off."""
    content = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(1, 4))):
        words = [match.span() for match in WORD.finditer(content)] or [(0, 0)]
        first = draw(st.integers(0, len(content)))
        word = words[draw(st.integers(0, len(words) - 1))]
        places = [word, (first, first), (first, first + 1), (first, first + 40), (first, len(content))]
        at, end = draw(st.sampled_from(places))
        instead = draw(st.sampled_from(TOKENS) | st.binary(max_size=8) | st.just(content[at : at + 60] * 2))
        content = content[:at] + instead + content[end:]
    return content


class Reading:
    """One reader with its folder, in which its valid files are read without an error."""

    def __init__(self, name, folder):
        self.reader, self.folder, self.refused = READERS[name], folder, 0
        for path, content in self.reader.beside().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        (folder / self.reader.file).parent.mkdir(parents=True, exist_ok=True)
        for content in self.reader.whole():
            (folder / self.reader.file).write_bytes(content)
            self.reader.read(folder)

    def give(self, content):
        """Have one file read, within its time and memory; only BadInput with one line may be raised."""
        (self.folder / self.reader.file).write_bytes(content)
        held = reset()
        said = ""
        signal.alarm(PATIENCE)
        try:
            self.reader.read(self.folder)
        except BadInput as error:
            self.refused, said = self.refused + 1, str(error)
        finally:
            signal.alarm(0)
        assert "\n" not in said
        assert peak() - held < MEMORY * MIB


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_one_clear_line_and_nothing_else(name, tmp_path):
    reading = Reading(name, tmp_path)

    @settings(max_examples=20, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(damaged(reading.reader.whole()))
    def give(content):
        reading.give(content)

    give()
    assert reading.refused > 0


# Three thousand of them once kept the parser busy for ten seconds; a hundred thousand are too much for its stack.
@pytest.mark.parametrize("opening", ['{"a": ', "[", "- ", "{a: "])
def test_nothing_is_nested_too_deeply_to_be_read(opening, tmp_path):
    path = tmp_path / "circuit.yaml"
    path.write_text("heads: " + "\n" * (opening == "- ") + opening * 100_000)
    assert_refused("nested too deeply", load_circuit, path)


LINE = '{{"step": {}, "loss": {}, "components": {{"x1": 0.5}}, "lr": 0.1}}\n'
RUN = "preset,seed,symbol,loss,fell,seconds,device\ninduction,0,x1,{},{},1.0,cpu\n"
ROW = "step,L0H0 a -> b\n80,0.1\n{},0.9\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log", LINE.format("1e999", 0.1)),
        ("log", LINE.format(20, 10**400)),
        ("table of attention", ROW.format(10**20)),
        ("table of attention", ROW.format("inf")),
        ("table of runs", RUN.format(10**400, 20)),
        ("table of runs", RUN.format(0.1, 10**400)),
    ],
)
def test_what_is_no_number_or_text_that_could_be_meant_is_named(name, content, tmp_path):
    reading = Reading(name, tmp_path)
    reading.give(content.encode())
    assert reading.refused == 1


def test_a_number_of_thousands_of_digits_does_not_end_the_process(tmp_path):
    reading = Reading("log of Inspect", tmp_path)
    reading.give(inspect_log("json").replace(b'"version": 2', b'"version": ' + b"9" * 5000, 1))
    assert reading.refused == 1


@given(st.text())
def test_a_message_is_one_line(text):
    assert "\n" not in str(BadInput(f"{text}\n{text}"))
