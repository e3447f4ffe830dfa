from pathlib import Path

import pytest

from circuits import BadInput
from retrieval_interp.sweep.plan import Run, load_plan

pytestmark = pytest.mark.usefixtures("micro_presets")


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
        ("seeds: 2\npresets: [micro]\nseeds: 9", "mine.yaml, line 3: not YAML ('seeds' is given twice)"),
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
    with pytest.raises(BadInput, match=r"nosuch: no such file.* laptop .*census, .*curricula, figure4_laptop"):
        load_plan("nosuch", "laptop")
