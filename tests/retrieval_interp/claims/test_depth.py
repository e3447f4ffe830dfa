from retrieval_interp.claims.depth import section_5
from tests.retrieval_interp.claims.conftest import edit


def test_the_papers_bound_is_held_against_every_model_with_fewer_layers(tables):
    paper, laptop, _ = section_5(tables)
    assert (paper.section, laptop.section) == ("5", "5")
    assert paper.measured.startswith("0 of 2 [0.00, 0.66] models")  # x2 to x5 in one layer, x5 in two
    assert paper.measured.endswith("(loss below 0.7; lowest loss 0.750)")
    assert paper.models == "D = 5; 1, 2 layers of 8 heads, recipe paper, 10000 steps, seed 0"
    assert (laptop.runs, laptop.verdict) == (6, "holds at smaller scale")  # with the curriculum and without it


def test_a_model_that_learns_a_symbol_with_too_few_layers_breaks_it(tables):
    table = tables / "sweeps" / "figure4_laptop" / "runs.csv"
    table.write_text(table.read_text().replace("laptop_ic_1,1,x2,0.75", "laptop_ic_1,1,x2,0.65"))
    _, laptop, _ = section_5(tables)
    assert laptop.measured.startswith("1 of 6 [0.03, 0.56] models")
    assert (laptop.measured[-7:], laptop.verdict) == (" 0.650)", "differs")


def test_the_exact_number_of_layers_is_held_against_the_model_of_one_layer(tables):
    *_, ours = section_5(tables)
    assert (ours.section, ours.runs, ours.verdict) == ("5 (ours)", 1, "differs")
    assert "with 1 layer instead of 2 the loss of x1 is 0.0200 ± 0.0005" in ours.measured
    exported = "loss_float16"
    edit(tables / "one_layer" / "config.json", lambda config: config["made"]["exported"][exported].update(mean=0.75))
    assert section_5(tables)[-1].verdict == "holds at smaller scale"
