"""Path patching, runs that branch off and MLP ablations on models of other architectures, with random weights."""

import pytest
import torch

from circuits import Circuit, Head, OneHot, path_patching, self_consistency
from circuits.checks.experiment import STREAM
from circuits.given import stream_seed
from circuits.model.layers import attention_patterns, layers
from circuits.tracing.patched_head import PatchedHead
from circuits.tracing.unablated import Unablated
from tests.circuits.entrance.small import Answering
from tests.circuits.model.test_architectures import PROBLEM, RUNNING, model_of
from tests.refusals import assert_refused

HEAD = Head(1, 2)
CIRCUIT = Circuit({HEAD: OneHot({"b": "a"})})
NORMS_AFTER = ("gemma2", "gemma3", "olmo2")  # what their heads write is normalised before it is added
ADDING = tuple(name for name in RUNNING if name not in NORMS_AFTER)
FEW = ("gemma2", "falcon")  # norms after heads, and attention beside the MLP


def read(name):
    run = Unablated(model_of(name), PROBLEM, PROBLEM.examples(4, 0))
    return run, PatchedHead(run, HEAD, run.examples.roles["b"])


def seen_in(run, residual, part):
    """The attention patterns of layer 1, or the values of the head there, at all positions; heads may share values."""
    seen = []
    see = {"v": lambda value: seen.append(value) or value} if part == "v" else None
    edit = None if see else (lambda pattern: seen.append(pattern) or pattern)
    layers(run.model, run.examples).block(1, residual, edit, heads=see)
    if part == "pattern":
        return seen[0][:, HEAD.index]
    return seen[0].repeat_interleave(run.model.cfg.n_heads // seen[0].shape[2], dim=2)[:, :, HEAD.index]


@pytest.mark.parametrize("name", ADDING)
def test_an_input_that_is_not_changed_changes_nothing(name):
    run, head = read(name)
    at = run.examples.roles["b"]
    own = run.z(HEAD)[run.example, at]
    for which, role in (("Q", "b"), ("K", "a"), ("V", "a")):
        rows = run.residuals[1][run.example, run.examples.roles[role]].repeat(3, 1, 1, 1)
        pattern, z = head.patched(which, run.examples.roles[role], rows)
        torch.testing.assert_close(pattern.expand(3, -1, -1, -1), head.pattern.expand(3, -1, -1, -1))
        torch.testing.assert_close(z, own.expand(3, -1, -1, -1), atol=1e-5, rtol=1e-4)
    losses = head.losses((torch.arange(4), at[:, 0]), own[:, 0])
    torch.testing.assert_close(losses, run.losses)


@pytest.mark.parametrize("name", ADDING)
def test_patched_queries_attend_as_if_the_residual_stream_of_the_source_were_another(name):
    """Only the source's own key is another then, so the attention to all positions before it is in proportion."""
    run, head = read(name)
    at, changed = run.examples.roles["b"], run.residuals[1].clone()
    rows = torch.randn(1, 4, 1, 32, generator=torch.Generator().manual_seed(0))
    changed[run.example, at] = rows[0]
    pattern, _ = head.patched("Q", at, rows)
    first, whole = int(at[0, 0]), seen_in(run, changed, "pattern")[run.example, at]
    found, expected = (own[..., :first] / own[..., :first].sum(-1, keepdim=True) for own in (pattern[0], whole))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(pattern[0], head.pattern, atol=1e-4)


@pytest.mark.parametrize("name", ADDING)
def test_patched_values_are_mixed_by_the_same_attention(name):
    run, head = read(name)
    at, changed = run.examples.roles["a"], run.residuals[1].clone()
    rows = torch.randn(1, 4, 1, 32, generator=torch.Generator().manual_seed(1))
    changed[run.example, at] = rows[0]
    own, new = (seen_in(run, residual, "v")[run.example[:, 0], at[:, 0]] for residual in (run.residuals[1], changed))
    attention = head.pattern.gather(-1, at[..., None])
    before = run.z(HEAD)[run.example, run.examples.roles["b"]]
    _, z = head.patched("V", at, rows)
    torch.testing.assert_close(z[0], before + attention * (new - own)[:, None], atol=1e-5, rtol=1e-4)


def test_edges_are_measured_where_attention_stands_beside_the_mlp():
    found = path_patching(model_of("falcon"), PROBLEM, CIRCUIT, n_examples=8)
    names = {"embed", "L0H0", "L0H1", "L0H2", "L0H3", "L0 MLP", "all senders"}
    assert {edge.sender for edge in found.edges} == names
    assert all(edge.attention_lost is not None for edge in found.edges if edge.input != "V")


@pytest.mark.parametrize("name", NORMS_AFTER)
def test_an_architecture_whose_parts_do_not_add_up_is_refused(name):
    assert_refused("heads and MLPs add to it", path_patching, model_of(name), PROBLEM, CIRCUIT, n_examples=8)


@pytest.mark.parametrize("name", RUNNING)
def test_a_run_goes_on_from_a_changed_residual_stream(name):
    model, examples = model_of(name), PROBLEM.examples(3, 1)
    changed = torch.randn(3, examples.inputs.shape[1], 32, generator=torch.Generator().manual_seed(4))
    own = Unablated(model, PROBLEM, examples).losses_above(0, changed)
    outputs = model.run_with_hooks(examples.inputs, fwd_hooks=[("blocks.1.hook_resid_pre", lambda *_, hook: changed)])
    torch.testing.assert_close(own, PROBLEM.losses(outputs, examples).mean(dim=1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FEW)
def test_heads_look_for_themselves_on_other_architectures(name):
    found = self_consistency(model_of(name), Answering(PROBLEM, model_of(name)), CIRCUIT, n_examples=8)
    run = PROBLEM.examples(8, stream_seed(0, STREAM))
    (own,) = (one for layer, one in attention_patterns(model_of(name), run) if layer == 1)
    b, a = (run.roles[role][:, 0] for role in ("b", "a"))
    expected = own[torch.arange(8), HEAD.index, b, a].mean().item()
    assert found.heads[0].along[0].attention.mean == pytest.approx(expected, abs=1e-5)
