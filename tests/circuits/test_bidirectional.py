"""Models that attend in both directions: by roles without a causal mask."""

import pytest
import torch

from circuits import Circuit, Examples, Head, OneHot, Roles, evaluate, role_attention
from circuits.averages import averages
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.tracing.path_patching import path_patching
from tests.circuits.entrance.small import plain_losses
from tests.refusals import assert_refused

PLACES = ("one", "two", "three", "four")
BACKWARDS = OneHot({"one": "four", "two": "three", "three": "two", "four": "one"})


class AnyTokens:
    """Four random tokens; the loss is the mean output."""

    roles = output_roles = PLACES
    loss_components = ("all",)

    def __init__(self, causal=False):
        self.causal = causal

    def examples(self, n, seed):
        tokens = torch.randint(5, (n, 4), generator=torch.Generator().manual_seed(seed))
        places = {name: torch.full((n,), place) for place, name in enumerate(PLACES)}
        return Examples(tokens, tokens, Roles.of(places, causal=self.causal))

    def losses(self, outputs, examples):
        return outputs.mean(dim=(1, 2))[:, None]


@pytest.fixture(scope="module")
def both_ways():
    torch.manual_seed(0)
    cfg = HookedTransformerConfig(
        **{"n_layers": 2, "d_model": 8, "n_ctx": 4, "d_head": 4, "n_heads": 2, "d_mlp": 8, "d_vocab": 5},
        **{"act_fn": "relu", "attention_dir": "bidirectional"},
    )
    model = HookedTransformer(cfg)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_()
    return model.eval()


def test_a_role_can_attend_to_all_others():
    roles = AnyTokens().examples(2, 0).roles
    assert roles.before("two") == ("one", "three", "four")
    assert roles.take(slice(0, 1)).before("one") == ("two", "three", "four")
    assert AnyTokens(causal=True).examples(2, 0).roles.before("two") == ("one",)


def test_replaced_heads_do_what_hooks_would_do(both_ways):
    examples = AnyTokens().examples(8, 1)
    average = averages(both_ways, AnyTokens()).patterns[Head(1, 0)]
    assert average.weights.triu(1).any()
    circuit = Circuit({Head(0, 0): BACKWARDS, Head(0, 1): "uniform", Head(1, 0): average})
    patterns = {(0, 0): torch.eye(4).flip(0), (0, 1): torch.full((4, 4), 0.25), (1, 0): average.weights}
    expected, seen = plain_losses(both_ways, AnyTokens(), examples, patterns), role_attention(both_ways, examples)
    assert evaluate(both_ways, AnyTokens(), examples, [circuit])[0] == pytest.approx(expected, abs=1e-5)
    assert seen.sum(dim=-1) == pytest.approx(torch.ones(2, 2, 4), abs=1e-5)


def test_what_needs_a_causal_mask_and_roles_that_differ_from_the_model_are_refused_in_one_line(both_ways):
    examples = AnyTokens(causal=True).examples(4, 0)
    said = "both directions; expected roles with causal=False"
    assert_refused(said, evaluate, both_ways, AnyTokens(), examples, [Circuit()])
    assert_refused("against the causal mask", Circuit({Head(0, 0): BACKWARDS}).check, examples.roles, 2, 2)
    said = "both directions; expected one with a causal mask"
    assert_refused(said, path_patching, both_ways, AnyTokens(), Circuit({Head(0, 0): BACKWARDS}))
