import json

import pytest
import torch
from sklearn.linear_model import Ridge

from circuits import BadInput
from retrieval_interp import load
from retrieval_interp.probes.linear_probe import RIDGE, Moments, predicted
from retrieval_interp.probes.role_probes import probe_roles


@pytest.fixture(scope="module")
def read():
    model, task, _ = load("induction")
    return probe_roles(model, task, n_examples=512)


def test_each_position_knows_its_own_input_before_layer_0_and_nothing_else(read):
    own = {"query": ("x0", "p0"), "pair1.first": ("x0",), "pair1.second": ("x1", "p1")}
    for place, role in enumerate(read.roles):
        for index, piece in enumerate(read.pieces):
            known = piece in own[role] or (role, piece) == (
                "pair1.first",
                "p1",
            )  # its place tells that of its neighbour
            assert read.errors[0, place, index] == pytest.approx(0 if known else 1, abs=0.05), (role, piece)


def test_the_pair_is_joined_in_layer_0_and_fetched_in_layer_1(read):
    assert read.knows("pair1.second")["x0"] == [(0, 1)]
    assert read.knows("query")["x1"] == [(1, 1)]
    assert "x1" not in read.knows("pair1.first")  # it stands before
    assert read.sentences()[0].startswith("query comes to know x1 from layer 1 on")


def test_the_errors_have_small_standard_errors(read):
    assert read.standard_errors.shape == read.errors.shape == (3, 3, 4)
    assert 0 < read.standard_errors.max() < 0.1


def test_the_table_the_json_and_the_figure_have_every_piece(read):
    assert read.table().columns.tolist() == ["layer", "role", *read.pieces, "in_symbols", "in_positions"]
    assert len(json.loads(json.dumps(read.to_json()))["errors"]) == 3
    assert sum(trace.type == "heatmap" for trace in read.figure().data) == 4


def test_moments_batch_by_batch_give_the_ridge_regression_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    x = 3 + torch.randn(300, 6, generator=generator, dtype=torch.double) * torch.arange(1, 7)
    y = x[:, :2] @ torch.randn(2, 2, generator=generator, dtype=torch.double) + torch.randn(300, 2, generator=generator)
    moments = Moments(6)
    for part in (slice(0, 100), slice(100, 300)):
        moments.add(x[part], y[part])
    penalty = RIDGE * (x - x.mean(dim=0)).square().sum(dim=0).mean().item()
    wanted = Ridge(alpha=penalty).fit(x.numpy(), y.numpy()).predict(x.numpy())
    assert torch.allclose(predicted(moments, x), torch.from_numpy(wanted), atol=1e-6)


def test_the_explained_variance_is_the_share_that_the_targets_wrote():
    generator = torch.Generator().manual_seed(0)
    symbol, place, noise = torch.randn(3, 4000, 1, generator=generator)
    moments = Moments(3)
    moments.add(torch.cat([2 * symbol, place, noise], dim=1), torch.cat([symbol, place], dim=1))
    assert moments.explained(slice(0, 1)) == pytest.approx(4 / 6, abs=0.03)
    assert moments.explained(slice(1, 2)) == pytest.approx(1 / 6, abs=0.03)


def test_other_tasks_and_single_examples_are_refused():
    model, task, _ = load("writing")
    with pytest.raises(BadInput, match="WritingTask"):
        probe_roles(model, task)
    model, task, _ = load("induction")
    with pytest.raises(BadInput, match="at least 2"):
        probe_roles(model, task, n_examples=1)
