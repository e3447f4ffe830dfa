import pandas as pd
import pytest

from circuits import BadInput
from retrieval_interp import data_folder, figure4_figure, figure4_table, read_runs
from retrieval_interp.sweep.run import COLUMNS

TITLES = ",".join(COLUMNS) + "\n"


@pytest.fixture
def by_hand():
    """Two layers learn x1 in one of two seeds, three learn all; alone x3 is learned never."""
    losses = {
        ("laptop_ic_2", 0): (0.1, 0.8, 0.9),
        ("laptop_ic_2", 1): (0.9, 0.8, 0.7),
        ("laptop_ic_3", 0): (0.1, 0.1, 0.1),
        ("laptop_nonic_3", 0): (0.8,),
    }
    rows = [
        {"preset": name, "seed": seed, "symbol": symbol, "loss": loss, "fell": 100.0 if loss < 0.5 else None}
        for (name, seed), own in losses.items()
        for symbol, loss in zip(("x1", "x2", "x3") if len(own) > 1 else ("x3",), own, strict=True)
    ]
    return pd.DataFrame(rows).assign(seconds=1.0, device="cpu")


def test_the_table_has_a_row_for_every_preset_and_symbol_and_for_their_mean(by_hand):
    rows = figure4_table(by_hand).set_index(["preset", "symbol"])
    assert [*rows.index] == [
        *((name, symbol) for name in ("laptop_ic_2", "laptop_ic_3") for symbol in ("all", "x1", "x2", "x3")),
        ("laptop_nonic_3", "all"),
        ("laptop_nonic_3", "x3"),
    ]
    first = rows.loc[("laptop_ic_2", "x1")]
    assert (first["layers"], first["takes"], first["runs"], first["learned"], first["fell"]) == (2, 2, 2, 1, 100)
    assert (first["loss"], first["low"], first["high"]) == pytest.approx((0.5, 0.1, 0.9))
    assert rows.loc[("laptop_ic_2", "all"), ["low", "high"]].tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("name", ["figure4_laptop", "figure4_paper", "curricula"])
def test_the_tables_that_are_kept_are_those_of_the_runs_beside_them(name):
    folder = data_folder() / "sweeps" / name
    kept = pd.read_csv(folder / "figure4.csv", comment="#")
    pd.testing.assert_frame_equal(figure4_table(read_runs(folder / "runs.csv")).astype(kept.dtypes), kept)


def test_the_figure_has_a_dot_for_every_run_on_the_left_and_for_every_symbol_on_the_right(by_hand):
    figure = figure4_figure(by_hand)
    dots = {trace.name: len(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert dots == {"D = 3, asked for x1 ... x3": 3, "D = 3, asked for x3": 1, "x1": 3, "x2": 3, "x3": 3}
    assert [title.text for title in figure.layout.annotations] == ["final loss", "D = 3, asked for x1 ... x3"]
    marks = {(shape.xref, round(shape.x0 + 0.4)) for shape in figure.layout.shapes if shape.x0 == shape.x1}
    assert marks == {("x", 3), ("x2", 2), ("x2", 3)}  # three layers for x3; two for x1, three for x2 and x3


@pytest.mark.parametrize(
    "text",
    [
        "letters",
        "preset,seed\ntiny,0\n",
        TITLES,
        f"{TITLES}tiny,0,x1,0.1,inf,1,cpu\ntiny,0,x2,0.1,,1,cpu\n",
        f"{TITLES}tiny,0,x1,-0.1,,1,cpu\ntiny,0,x2,0.1,,1,cpu\n",
        f"{TITLES}tiny,0,x1,0.1,,1,cpu\n",
        f"{TITLES}{'tiny,0,x1,0.1,,1,cpu' * 2}\n",
        f"{TITLES}nosuch,0,x1,0.1,,1,cpu\n",
    ],
)
def test_what_is_no_table_of_runs_is_refused(tmp_path, text):
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(BadInput, match=r"runs\.csv: not a table of runs \(.*\); columns: preset, seed, symbol, loss"):
        read_runs(tmp_path / "runs.csv")
