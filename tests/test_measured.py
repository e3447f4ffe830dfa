from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import BadInput, Circuit, judge, validate
from circuits import measured as measured_module
from circuits.evaluation import Piece, pieces
from circuits.measured import Measured
from circuits.sample import Sample


@pytest.fixture(autouse=True)
def kept_at_once(monkeypatch):
    monkeypatch.setattr(measured_module, "KEPT_EVERY", 0.0)


class Counted:
    """Stands in the place of ``pieces``: counts those that run, and fails at the one that it is told."""

    def __init__(self, fails_at: int = -1) -> None:
        self.n, self.fails_at = 0, fails_at

    def __call__(self, *arguments):
        return (replace(piece, losses=lambda piece=piece: self._run(piece)) for piece in pieces(*arguments))

    def _run(self, piece: Piece):
        if self.n == self.fails_at:
            raise KeyboardInterrupt
        self.n += 1
        return piece.losses()


def run(counted, model, problem, circuit, folder):
    measured = Measured(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(judge, "pieces", counted)
        return validate(model, problem, circuit, n_examples=300, measured=measured).to_json()


@pytest.fixture(scope="module")
def whole(model, problem, circuit):
    counted = Counted()
    return run(counted, model, problem, circuit, None), counted.n


@pytest.mark.slow
@settings(max_examples=20)
@given(data=st.data())
def test_a_stopped_validation_goes_on_where_it_was_and_finds_the_very_same(
    model, problem, circuit, whole, tmp_path_factory, data
):
    expected, n = whole
    folder = tmp_path_factory.mktemp("measured")
    stopped = Counted(fails_at=data.draw(st.integers(0, n - 1)))
    with pytest.raises(KeyboardInterrupt):
        run(stopped, model, problem, circuit, folder)
    rest = Counted()
    assert run(rest, model, problem, circuit, folder) == expected
    assert stopped.n + rest.n == n
    assert run(Counted(fails_at=0), model, problem, circuit, folder) == expected  # nothing runs again


@pytest.mark.parametrize("other", ["seed", "number", "weights", "loss"])
def test_what_was_measured_on_something_else_is_not_taken(model, problem, tmp_path, other):
    def key(model, problem, n=8, seed=0):
        measured = Measured(tmp_path)
        measured.of(model, problem, Sample(problem, n, seed))
        return [*measured._ledgers]

    class OtherLoss(type(problem)):
        def losses(self, outputs, examples):
            return 2 * super().losses(outputs, examples)

    before = key(model, problem)
    assert before == key(model, problem)
    if other == "weights":
        with torch.no_grad():
            model.blocks[1].attn.W_V[0, 0, 0] += 1e-3
        try:
            assert key(model, problem) != before
        finally:
            with torch.no_grad():
                model.blocks[1].attn.W_V[0, 0, 0] -= 1e-3
    else:
        changed = {"seed": {"seed": 1}, "number": {"n": 9}, "loss": {"problem": OtherLoss()}}[other]
        assert key(model, **{"problem": problem, **changed}) != before


@pytest.mark.parametrize("damage", [b"", b"no safetensors", None])
def test_damaged_files_are_measured_again(model, problem, circuit, tmp_path, damage):
    expected = run(Counted(), model, problem, circuit, tmp_path)
    first = min(tmp_path.rglob("*.safetensors"))
    first.write_bytes(first.read_bytes()[:-9] if damage is None else damage)
    again = Counted()
    assert run(again, model, problem, circuit, tmp_path) == expected
    assert again.n > 0


def test_losses_that_are_no_numbers_or_of_another_shape_are_not_taken(problem, model, tmp_path):
    from safetensors.torch import save_file

    measured, sample = Measured(tmp_path), Sample(problem, 8, 0)
    measured.of(model, problem, sample)
    (key,) = measured._ledgers
    digest = Circuit().digest
    for tensor in (
        torch.full((4, 1), torch.nan),
        torch.zeros(4),
        torch.zeros(4, 3),
        torch.zeros(4, 1, dtype=torch.int),
    ):
        folder = tmp_path / key
        folder.mkdir(exist_ok=True)
        save_file({f"{digest}:0": tensor}, folder / "000000.safetensors")
        assert Measured(tmp_path).of(model, problem, sample).n(Circuit()) == 0, tensor


def test_what_is_not_of_a_validation_is_left_where_it_is(model, problem, circuit, tmp_path):
    other = tmp_path / "unfinished" / "chapter1.txt"
    other.parent.mkdir()
    other.write_text("thesis")
    measured = Measured(other.parent)
    assert not measured.begun
    validate(model, problem, circuit, n_examples=8, measured=measured)
    measured.keep()
    assert measured.begun
    measured.forget()
    assert [*other.parent.iterdir()] == [other]
    assert other.read_text() == "thesis"


def test_a_file_or_a_link_is_no_folder_for_what_was_measured(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ("0" * 16)).symlink_to(tmp_path)
    for name, place in {"file": "file", "link": "link", "kept": f"kept/{'0' * 16}"}.items():
        with pytest.raises(BadInput, match=f"{place}: is no folder"):
            Measured(tmp_path / name)


def test_what_is_forgotten_is_gone(model, problem, circuit, tmp_path):
    run(Counted(), model, problem, circuit, tmp_path / "unfinished")
    assert (tmp_path / "unfinished").exists()
    Measured(tmp_path / "unfinished").forget()
    assert not (tmp_path / "unfinished").exists()
