import shutil

import pytest

from retrieval_interp.claims.emerging import section_9
from retrieval_interp.claims.found_circuit import found_circuit
from retrieval_interp.claims.tables import PAPER, SMALL
from tests.retrieval_interp.claims.conftest import D, edit, write_log


def rows(tables, models=SMALL):
    found = section_9(tables, models, found_circuit(tables / models.folders["D"]))
    return dict(zip(("loss", "letter", "ours", "i", "ii", "iii", "iv"), found, strict=True))


def test_every_row_says_what_was_measured_and_whether_it_holds(tables):
    found = rows(tables)
    assert found["letter"].measured.startswith("0.0400 ± 0.0010")
    assert found["ours"].measured.startswith("0.0300 ± 0.0010")
    assert found["ours"].verdict == "holds at smaller scale"
    assert found["i"].verdict == "differs"  # x1 arrives at step 95, epoch 12
    assert found["ii"].verdict == "not measured"  # 15 of 20 steps
    assert found["iii"].verdict == "holds at smaller scale"
    assert "15, 50 steps" in found["iv"].measured
    assert found["iv"].verdict == "holds at smaller scale"


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [(0.0154, "differs"), (0.0156, "holds at smaller scale"), (0.0619, "holds at smaller scale"), (0.0621, "differs")],
)
def test_a_loss_within_a_factor_of_two_is_the_papers(tables, loss, verdict):
    edit(tables / D / "config.json", lambda config: config["made"]["exported"]["loss_float16"].update(mean=loss))
    assert rows(tables)["loss"].verdict == verdict


@pytest.mark.parametrize(
    ("epoch", "verdict"),
    [(224, "differs"), (226, "holds at smaller scale"), (899, "holds at smaller scale"), (901, "differs")],
)
def test_the_first_head_emerges_at_the_papers_epoch_within_a_factor_of_two(tables, epoch, verdict):
    step = 8 * epoch
    columns = ",".join(f"L{k}H0 query -> pair{k}.second" for k in (1, 2, 3))
    curve = [(0, 0, 0, 0), (step - 1, 0, 0, 0), (step + 1, 1, 0, 0), (step + 100, 1, 1, 0), (step + 900, 1, 1, 1)]
    lines = [",".join(map(str, row)) for row in curve]
    (tables / D / "attention.csv").write_text("\n".join([f"step,{columns}", *lines]) + "\n")
    assert rows(tables)["i"].verdict == verdict


def test_a_model_without_a_circuit_is_followed_along_all_paths_with_much_attention(tables):
    found = rows(tables, PAPER)
    assert (found["loss"].verdict, found["letter"].verdict, found["ours"].verdict) == (
        "differs",
        "not measured",
        "not measured",
    )
    assert found["letter"].measured.startswith("no circuit found: its own loss is 0.5000 ± 0.0005")
    assert "15, 50 steps" in found["iv"].measured
    assert found["iv"].verdict == "holds"


def test_other_seeds_stand_beside(tables):
    folder = tables / "paper_recipe"
    copy = shutil.copytree(folder / "transformer_d_seed_0", folder / "transformer_d_seed_1")
    edit(copy / "config.json", lambda config: config["made"].update(seed=1))
    write_log(copy, [100, 200, 300, 6400], {"x1": 200, "x2": 7000, "x3": 7000})
    found = rows(tables, PAPER)
    assert "; seed 1, beside it: 0.5000 ± 0.0005" in found["loss"].measured
    assert "Of the 1 other seeds 0 meet the rule, 1 do not, 0 do not show it." in found["iii"].measured
    assert found["iii"].runs == 2
