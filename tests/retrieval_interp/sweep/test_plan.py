import re

import pytest

from retrieval_interp.sweep.plan import PLANS, Run, find_plan, load_plan
from tests.annotations import ROOT
from tests.command import run
from tests.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("micro_presets")


def test_every_plan_can_be_loaded_and_is_named_by_the_help_the_documentation_and_the_refusal_of_another(capsys):
    plans = {path.stem: load_plan(path) for path in PLANS.glob("*.yaml")}
    refusal = assert_refused("nosuch: no such file", find_plan, "nosuch", "laptop")
    texts = (run(capsys, "study", "sweep", "--help")[1], (ROOT / "docs" / "commands.md").read_text())
    for text in (*texts, refusal):
        assert {"figure4", *plans} <= {*re.findall(r"\w+", text)}
    assert [len(load_plan(find_plan("figure4", scale))) for scale in ("paper", "laptop")] == [128, 36]


def test_a_plan_is_a_list_of_presets_with_seeds(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("seeds: 2\npresets: [micro, other]\n")
    assert load_plan(find_plan(str(path), "laptop")) == [
        Run(name, seed) for name in ("micro", "other") for seed in (0, 1)
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds: 0\npresets: [micro]", "seeds: Input should be greater than or equal to 1"),
        ("seeds: many\npresets: [micro]", "seeds: Input should be a valid integer"),
        ("seeds: 199999999999999\npresets: [micro]", "seeds: Input should be less than"),
        ("seeds: 2\npresets: [equations]", "equations is not a preset of the retrieval problem"),
        ("seeds: 2", "presets: Field required"),
        ("seeds: 2\npresets: micro", "presets: Input should be a valid list"),
        ("seeds: 2\npresets: [micro, micro]", "micro is given twice"),
        ("seeds: 2\npresets: [nosuch]", "mine.yaml: unknown preset 'nosuch'"),
        ("seeds: [", "not YAML"),
    ],
)
def test_a_plan_that_is_none_is_one_clear_line(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert message in assert_refused(r"mine\.yaml", load_plan, path)
