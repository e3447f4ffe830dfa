import re
from pathlib import Path

import pytest

from circuits import BadInput
from retrieval_interp.sweep.known_plans import PLANS
from retrieval_interp.sweep.plan import Run, load_plan
from tests.annotations import ROOT
from tests.command import run

pytestmark = pytest.mark.usefixtures("micro_presets")


def plans() -> set[str]:
    """The names of all plans, each of which can be loaded."""
    names = {path.stem for path in PLANS.glob("*.yaml")}
    assert names == {load_plan(name, "laptop").name for name in names}
    return names


def words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}


def test_the_help_and_the_documentation_name_every_plan(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (run(capsys, "study", "sweep", "--help")[1], (ROOT / "docs" / "commands.md").read_text()):
        assert {"figure4", *plans()} <= words(text)


def test_a_plan_is_a_list_of_presets_with_seeds(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("seeds: 2\npresets: [micro, other]\n")
    assert load_plan(str(path), "laptop").runs == (Run("micro", 0), Run("micro", 1), Run("other", 0), Run("other", 1))
    assert len(load_plan("figure4", "paper").runs) == 128
    assert len(load_plan("figure4", "laptop").runs) == 36


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 0\npresets: [micro]", "seeds is '0'; expected a whole number from 1"),
        ("seeds: '00000000199999999999'\npresets: [micro]", "expected a whole number from 1"),
        ("seeds: 2\npresets: [equations]", "equations is not a preset of the retrieval problem"),
        ("seeds: -1\npresets: [micro]", "seeds is '-1'; expected a whole number"),
        ("seeds: 2", "expected the keys seeds and presets"),
        ("seeds: 2\npresets: micro", "presets is not a list of names"),
        ("seeds: 2\npresets: []", "presets is not a list of names"),
        ("seeds: 2\npresets: [micro, micro]", "micro is given twice"),
        ("seeds: 2\npresets: [nosuch]", "mine.yaml: unknown preset 'nosuch'"),
        ("seeds: [", "not YAML"),
        ("seeds: 2\npresets: [micro]\nseeds: 9", "mine.yaml, line 3: 'seeds' is given twice"),
    ],
)
def test_a_plan_that_is_none_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        load_plan(str(path), "laptop")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_plan_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(BadInput, match="nosuch: no such file") as refused:
        load_plan("nosuch", "laptop")
    assert {"figure4", *plans()} <= words(str(refused.value))
