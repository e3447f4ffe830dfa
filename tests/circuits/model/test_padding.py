"""Prompts of different lengths in one batch: the results of each prompt alone, on whichever side the padding is."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from circuits import Circuit, Examples, FixedPattern, Head, OneHot, Roles, evaluate, role_attention
from circuits.averages import Averages
from circuits.mechanisms import Identity, Previous, Uniform
from circuits.mechanisms.mechanism import head_pattern
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from tests.architectures import VOCABULARY, bridge
from tests.handmade import losses_by_hooks
from tests.refusals import assert_refused

LENGTHS = (7, 12, 9)
LONGEST = max(LENGTHS)
FALLING = torch.rand(LONGEST, LONGEST, generator=torch.Generator().manual_seed(5)).tril() / LONGEST
FALLING = FixedPattern(FALLING.triu(-3))  # within the windows of 4 positions that some of the models have
MECHANISMS = (Uniform(), Identity(), Previous(), FALLING)
CIRCUITS = [
    Circuit(),
    *(Circuit({Head(layer, h): own for layer in range(2) for h in range(4)}) for own in MECHANISMS),
    Circuit({Head(0, 0): Uniform(), Head(0, 1): Previous(), Head(1, 2): Identity()}),
    Circuit({Head(0, h): Uniform() for h in range(4)} | {Head(1, h): OneHot({"last": "third"}) for h in range(4)}),
    Circuit({Head(0, 0): Uniform(), Head(1, 0): OneHot({"last": "position 1"}, "uniform")}),
]


class Last:
    """The third token is asked for at the last."""

    roles = ("third", "last")
    loss_components = ("log-probability",)
    output_roles = ("last",)

    def __init__(self, side):
        self.side = side

    def examples(self, n=3, seed=0):
        drawn = torch.Generator().manual_seed(seed)
        return self.padded([torch.randint(3, VOCABULARY, (length,), generator=drawn) for length in LENGTHS])

    def padded(self, prompts, to=LONGEST):
        tokens, valid = torch.zeros(len(prompts), to, dtype=torch.long), torch.zeros(len(prompts), to)
        first = torch.tensor([to - len(prompt) if self.side == "left" else 0 for prompt in prompts])
        for row, (prompt, start) in enumerate(zip(prompts, first.tolist(), strict=True)):
            tokens[row, start : start + len(prompt)], valid[row, start : start + len(prompt)] = prompt, 1
        long = torch.tensor([len(prompt) for prompt in prompts])
        roles = Roles.of({"third": first + 2, "last": first + long - 1}, valid=valid if to > min(long) else None)
        return Examples(tokens, torch.stack([prompt[2] for prompt in prompts]), roles)

    def alone(self):
        """Each prompt by itself, without padding."""
        batch = self.examples()
        prompts = [tokens[valid] for tokens, valid in zip(batch.inputs, batch.roles.valid, strict=True)]
        return [self.padded([prompt], to=len(prompt)) for prompt in prompts]

    def losses(self, outputs, examples):
        at = examples.roles["last"][:, 0]
        return cross_entropy(outputs[torch.arange(len(at)), at], examples.targets, reduction="none")[:, None]


NAMES = ("hooked", "gpt2", "llama", "gemma2", "neox")


@cache
def model_of(name):
    if name != "hooked":
        return bridge(name)
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_head": 8, "n_ctx": 32, "d_vocab": VOCABULARY}
    return HookedTransformer(HookedTransformerConfig(**sizes, act_fn="gelu_new", d_mlp=48, seed=0, device="cpu")).eval()


def shorter(circuit, n_positions):
    """The circuit for a prompt that is shorter than its fixed patterns."""
    own = {h: FixedPattern(m.weights[:n_positions, :n_positions]) for h, m in circuit.heads.items() if m is FALLING}
    return Circuit({**circuit.heads, **own})


@pytest.mark.parametrize(
    ("name", "side"), [*((name, "left") for name in NAMES), ("hooked", "right"), ("llama", "right")]
)
def test_a_padded_batch_gives_the_losses_of_each_prompt_alone(name, side):
    model, task, padded = model_of(name), Last(side), Last(side).examples()
    found = evaluate(model, task, padded, CIRCUITS)
    assert (found - losses_by_hooks(model, task, padded, CIRCUITS)).abs().max() <= 1e-6
    for row, one in enumerate(task.alone()):
        circuits = [shorter(circuit, one.inputs.shape[1]) for circuit in CIRCUITS]
        assert (found[:, row] - evaluate(model, task, one, circuits)[:, 0]).abs().max() <= 1e-5


@pytest.mark.parametrize("side", ["left", "right"])
def test_average_attention_counts_positions_from_the_first_token(side):
    model = model_of("gpt2")
    examples, alone = Last(side).examples(), Last(side).alone()
    assert_refused("the examples have different lengths and no layout", Averages.of, model, examples)
    lengths = replace(examples, roles=replace(examples.roles, layout=torch.arange(len(alone))))
    found = Averages.of(model, lengths)
    for layout, one in enumerate(alone):
        (own,) = Averages.of(model, one).attention
        more = LONGEST - own.shape[-1]
        assert torch.allclose(found.attention[layout], pad(own, (0, more, 0, more)), atol=1e-5)
        z = Averages.of(model, one).outputs[0, 1, :, 0]
        assert torch.allclose(
            found.output(Head(1, 0), lengths.roles, LONGEST)[layout][lengths.roles.valid[layout]], z, atol=1e-5
        )
    by_role = torch.stack([role_attention(model, one) for one in alone]).mean(dim=0)
    assert torch.allclose(role_attention(model, Last(side).examples()), by_role, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mechanism", [*MECHANISMS, OneHot({"last": "third"}, "uniform")], ids=str)
def test_no_mechanism_attends_to_padding_and_every_row_of_a_token_keeps_its_sum(mechanism, side):
    roles = Last(side).examples().roles
    pattern = head_pattern(Head(0, 0), mechanism, roles, LONGEST).expand(len(LENGTHS), -1, -1)
    assert not pattern.transpose(1, 2)[~roles.valid].any()
    if mechanism is not FALLING:
        assert torch.allclose(pattern.sum(dim=-1)[roles.valid], torch.tensor(1.0))


def test_examples_whose_parts_do_not_belong_together_are_refused():
    one = Last("left").examples()
    for changed, what in (
        ({"inputs": one.inputs[:, :5]}, "valid has 12 positions; the inputs have 5"),
        ({"inputs": one.inputs[:2]}, "the roles belong to 3 examples; the inputs are 2"),
        ({"roles": Roles.of({"end": torch.tensor([4, 12, 0])})}, "a role is at position 12; the inputs have 12"),
        ({"roles": Roles.of({"end": torch.tensor([4, -1, 0])})}, "a role is at position -1"),
    ):
        assert_refused(what, replace, one, **changed)
    assert_refused("0 examples; expected at least 1", one.take, slice(0, 0))


def test_padding_on_both_sides_and_roles_at_padding_are_refused():
    at = {"a": torch.tensor([1])}
    for valid, what in (([[0, 1, 0]], "both sides"), ([[1, 0, 0]], "'a' is at a position"), ([0, 1], "shape")):
        assert_refused(what, Roles.of, at, valid=torch.tensor(valid))
