import json

import pytest
import torch

from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.cli import main
from retrieval_interp.models.presets import Architecture
from retrieval_interp.probes.probe import Probes, possible_layers, probe
from tests.browser import opened


def test_the_answer_of_the_induction_model_can_be_read_after_its_second_layer_and_not_before():
    model, task, _ = load("induction")
    read = probe(model, task, n_examples=512)
    assert read.logit_lens.shape == read.linear_probe.shape == (3, 1)
    assert read.layers("logit_lens") == read.layers("linear_probe") == {"x1": 1}
    assert read.logit_lens[-1].item() < 0.02  # the model's own answer
    assert read.linear_probe[0].item() == pytest.approx(1.0, abs=0.1)  # before any layer the query knows nothing of it


def test_the_models_own_readout_after_the_last_layer_is_its_loss():
    task = RetrievalTask(n_steps=2, n_chains=2)
    model = VectorTransformer(Architecture(n_layers=2, n_heads=2, d_model=32, d_head=16).config(task), seed=1).eval()
    read = probe(model, task, n_examples=64, seed=5)
    examples = task.examples(64, seed=6)
    with torch.no_grad():
        losses = task.losses(model(examples.inputs), examples).mean(dim=0)
    assert torch.allclose(read.logit_lens[-1], losses, atol=1e-5)


def test_the_first_layer_that_reads_a_symbol_is_named_and_what_is_never_read_is_none():
    errors = torch.tensor([[0.1, 1.0, 1.0], [0.1, 0.4, 1.0], [0.1, 0.6, 1.0]])
    read = Probes(("x1", "x2", "x3"), errors, errors)
    assert read.layers("logit_lens") == {"x1": -1, "x2": 0, "x3": None}
    table = read.table()
    assert table.columns.tolist() == ["readout", "layer", "x1", "x2", "x3"]
    assert table["layer"].tolist() == [-1, 0, 1] * 2


@pytest.mark.slow
def test_the_command_tells_what_flow_predicts_beside_what_was_measured(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "probe", "induction", "--examples", "256", "--out", str(tmp_path), "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["layers"] == {own: {"x1": 1} for own in ("possible", "circuit", "logit_lens", "linear_probe")}
    assert len(document["errors"]) == 6
    assert (tmp_path / "probe.csv").read_text().splitlines()[1] == "readout,layer,x1"
    with opened(tmp_path / "probe.html") as (page, complaints):
        assert page.locator("#probe-table tr").nth(1).inner_text().split("\t") == ["x1"] + ["layer 1"] * 4
        assert page.locator("#probe .heatmaplayer").count() == 2
        assert complaints == []


def test_a_model_that_writes_is_read_where_it_writes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "probe", "writing", "--examples", "256", "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out)
    symbols = [f"x{k}" for k in range(1, 8)]
    assert (
        document["layers"]["possible"] == document["layers"]["logit_lens"] == dict.fromkeys(symbols, 1)
    )  # each is one hop
    assert document["layers"]["circuit"] is None  # it has no circuit
    assert all(row[symbol] > 0.5 for row in document["errors"] if row["layer"] == -1 for symbol in symbols)


def test_what_is_possible_is_what_the_depth_of_the_chain_allows():
    assert possible_layers(RetrievalTask(n_steps=4)) == {"x1": 1, "x2": 2, "x3": 2, "x4": 3}


def test_a_regression_on_one_example_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["study", "probe", "induction", "--examples", "1"])
    assert ended.value.code == 2
    assert "1 examples; expected at least 2" in capsys.readouterr().err
