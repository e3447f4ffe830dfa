import re
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits import BadInput
from retrieval_interp.models import presets
from retrieval_interp.sweep import store as store_module
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import RESULT, STORE, Store
from tests.sweeps import MICRO, trained

pytestmark = pytest.mark.usefixtures("micro_presets")

RUNS = tuple(Run(name, seed) for name in ("micro", "other") for seed in range(3))


def test_a_run_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, store.claimed(run) as ours:
        assert ours
        patched.setattr(store_module, "save_tensors", full)
        with pytest.raises(BadInput, match=r"seed-0000: cannot be written \(No space left on device\)"):
            store.add(trained(run))
    assert not store.has(run)
    assert sorted(path.name for path in store.folder.rglob("*") if path.is_file()) == ["micro-0", STORE]  # and a lock
    store.add(trained(run))
    assert {path.name for path in store.path(run).iterdir()} == {
        "config.json",
        "log.jsonl",
        RESULT,
        "model.safetensors",
    }


def test_a_disk_that_is_full_leaves_nothing_of_a_run(tmp_path: Path) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)
    large = replace(trained(run), weights={"W": torch.ones(100_000)})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    try:
        with pytest.raises(BadInput, match=r"model\.safetensors: cannot be written"):
            store.add(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not store.has(run)
    assert [*(store.folder).rglob("*.safetensors")] == []


def test_two_who_begin_a_store_at_once_both_have_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / ".store.json.x7").write_text("")  # the other one's, not yet in its place; or left by a kill
    assert not Store(folder).has(Run("micro", 0))


def test_nobody_claims_what_another_has_claimed_or_what_is_there(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "store"), Store(tmp_path / "store")
    first, second = RUNS[:2]
    with one.claimed(first) as ours:
        assert ours
        with two.claimed(first) as theirs, two.claimed(second) as other:
            assert (theirs, other) == (False, True)
        one.add(trained(first))
    with two.claimed(first) as there, two.claimed(second) as left:
        assert (there, left) == (False, True)


def test_a_store_of_another_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear")
    with pytest.raises(BadInput, match="mine: holds other files"):
        Store(tmp_path / "mine")
    store = Store(tmp_path / "store")
    (store.folder / STORE).write_text('{"format": 99}')
    with pytest.raises(BadInput, match="format is 99; this version reads 1"):
        Store(store.folder)
    (store.folder / STORE).write_text('{"format": true}')
    with pytest.raises(BadInput, match="damaged"):
        Store(store.folder)
    (store.folder / STORE).write_text("{")
    with pytest.raises(BadInput, match="damaged"):
        Store(store.folder)


@pytest.mark.parametrize("place", [".partial", ".partial/micro-0000", ".locks", "micro", "micro/seed-0000"])
def test_a_link_in_a_store_is_refused_and_what_it_leads_to_is_left_alone(place: str, tmp_path: Path) -> None:
    folder, theirs = Store(tmp_path / "store").folder, tmp_path / "theirs"
    (theirs / "micro-0000" / "seed-0000").mkdir(parents=True)
    (theirs / "micro-0000" / "letter.txt").write_text("dear")
    before = sorted(theirs.rglob("*"))
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).symlink_to(theirs)
    with pytest.raises(BadInput, match=f"store/{re.escape(place)}: is a link"):
        Store(folder)
    assert sorted(theirs.rglob("*")) == before


def test_damaged_runs_and_runs_of_other_settings_are_named_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = Store(tmp_path / "store"), Run("micro", 0)
    store.add(trained(run))
    whole = (store.path(run) / RESULT).read_text()
    damaged = (
        *("{", "[]", '{"preset": "micro"}', whole.replace("x2", "x7"), whole.replace("micro", "other")),
        *(whole.replace("0.1", wrong) for wrong in ('"a"', "NaN", "null", "[1]", "-0.1", "1" + "0" * 400)),
        *(whole.replace("20", wrong) for wrong in ('"20"', "2.5", "true", "-1")),
        *(whole.replace('"seed": 0', '"seed": false'), whole.replace('"cpu"', "[1]")),
    )
    for text in damaged:
        (store.path(run) / RESULT).write_text(text)
        with pytest.raises(BadInput, match="seed-0000"):
            store.result(run)
    (store.path(run) / RESULT).write_text(whole)
    assert store.result(run).losses == {"x1": 0.1, "x2": 0.1}
    monkeypatch.setitem(presets.PRESETS, "micro", replace(MICRO, recipe=replace(MICRO.recipe, steps=80)))
    with pytest.raises(BadInput, match="other settings than micro has now; choose another folder"):
        store.result(run)
