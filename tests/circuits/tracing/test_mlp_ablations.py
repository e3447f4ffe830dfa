"""MLPs written by hand: one layer, no attention; a position holds -1, 0 or 1, and the answer is a function of it."""

from dataclasses import dataclass

import pytest
import torch

from circuits import Examples, Roles
from circuits.tracing.mlp_ablations import MLPReport, mlp_ablations
from tests.handmade import blank_transformer
from tests.refusals import assert_refused

NUMBERS = torch.tensor([-1.0, 0.0, 1.0])  # of the three tokens


@dataclass(frozen=True)
class Function:
    """Asks for a function of the number at \"asked\"; what is at \"beside\" does not matter."""

    of: str
    roles: tuple[str, ...] = ("beside", "asked")
    loss_components: tuple[str, ...] = ("answer",)
    output_roles: tuple[str, ...] = ("asked",)

    def examples(self, n, seed):
        tokens = torch.randint(3, (n, 2), generator=torch.Generator().manual_seed(seed))
        numbers = NUMBERS[tokens[:, 1]]
        targets = numbers.abs() if self.of == "abs" else numbers
        return Examples(tokens, targets, Roles.of({"beside": torch.zeros(n).long(), "asked": torch.ones(n).long()}))

    def losses(self, outputs, examples):
        return (outputs[:, 1] - examples.targets[:, None]).square()


def hand_written(of, attn_only=False):
    """A residual stream [number, answer]; the MLP writes relu(x) + relu(-x), or relu(x) - relu(-x), to the answer."""
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 2, "d_head": 2, "d_mlp": 2, "n_ctx": 2}
    model = blank_transformer(**sizes, d_vocab=3, d_vocab_out=1, act_fn="relu", attn_only=attn_only)
    with torch.no_grad():
        model.embed.W_E[:, 0] = NUMBERS
        if not attn_only:
            model.blocks[0].mlp.W_in[0] = torch.tensor([1.0, -1.0])
            model.blocks[0].mlp.W_out[:, 1] = torch.tensor([1.0, 1.0 if of == "abs" else -1.0])
        model.unembed.W_U[1] = 1
    return model


def loss_of(report, layer, role, instead):
    (loss,) = (one.loss for one in report.losses if (one.layer, one.role, one.instead) == (layer, role, instead))
    return loss


def test_a_linear_map_does_as_well_as_an_mlp_that_copies():
    report = mlp_ablations(hand_written("copy"), Function("copy"), n_examples=2000)
    assert report.unablated.mean == 0
    assert {one.role for one in report.losses if one.instead == "mean" and one.low == "fails"} == {"asked", None}
    assert loss_of(report, 0, "asked", "mean").mean == pytest.approx(2 / 3, abs=0.03)  # the variance of the numbers
    assert loss_of(report, 0, "beside", "mean").mean == 0
    assert all(one.low == "holds" and one.loss.mean < 1e-4 for one in report.losses if one.instead == "linear")


def test_no_linear_map_does_as_well_as_an_mlp_that_computes_the_absolute_value():
    report = mlp_ablations(hand_written("abs"), Function("abs"), n_examples=2000)
    for instead in ("linear", "mean"):
        assert loss_of(report, 0, "asked", instead).mean == pytest.approx(2 / 9, abs=0.02)  # the variance of |x|
    assert {one.low for one in report.losses if one.role == "asked"} == {"fails"}


def test_an_mlp_whose_output_is_not_read_is_not_needed():
    model = hand_written("copy")
    with torch.no_grad():
        model.unembed.W_U.copy_(torch.tensor([[1.0], [0.0]]))  # the answer is the number itself
    report = mlp_ablations(model, Function("copy"), n_examples=50)
    assert {one.low for one in report.losses} == {"holds"}


def test_every_layer_and_role_has_its_losses(random_model, chains):
    report = mlp_ablations(random_model, chains, n_examples=32)
    assert len(report.losses) == 2 * (3 * (5 + 1) + 1)  # two stand-ins; 3 layers, 5 roles and all positions; all layers
    unablated = report.unablated.mean
    assert all(one.added.mean == pytest.approx(one.loss.mean - unablated, abs=1e-6) for one in report.losses)


def test_the_table_has_every_loss_and_the_report_is_read_back_equal():
    report = mlp_ablations(hand_written("abs"), Function("abs"), n_examples=50)
    places = report.table()[["layer", "role"]].drop_duplicates().to_numpy().tolist()
    assert places == [[0, "all"], [0, "beside"], [0, "asked"], ["all", "all"]]
    assert MLPReport.model_validate_json(report.model_dump_json()) == report


def test_a_model_without_mlps_is_refused():
    assert_refused("no MLPs", mlp_ablations, hand_written("copy", attn_only=True), Function("copy"))
