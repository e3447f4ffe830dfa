import pytest

from circuits import BadInput
from retrieval_interp.claims.depth import section_5


def test_the_bounds_are_held_against_every_model_with_fewer_layers(tables):
    theorem, assumption = section_5(tables)
    assert (theorem.section, assumption.section) == ("5", "5 (ours)")
    assert theorem.measured.startswith("0 of 1 [0.00, 0.79] models")
    assert theorem.measured.endswith("(loss below 0.7; lowest loss 0.760)")
    assert theorem.models == "depth sweep, width 64, recipe small, up to 100 steps, seeds 0"
    assert theorem.verdict == "holds at smaller scale"
    assert assumption.measured.startswith("1 of 2 [0.09, 0.91] models")
    assert assumption.measured.endswith("; 1 with MLPs, 8 heads, pairs shuffled within blocks")
    assert (assumption.runs, assumption.verdict) == (2, "differs")


def test_a_depth_sweep_without_runs_is_refused(tables):
    (tables / "depth_sweep" / "runs.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"runs.jsonl: holds no run; make it with: retrieval-interp study depth-sweep"):
        section_5(tables)
