"""Path patching against edges that are known by hand, and against plain hooks."""

from dataclasses import dataclass, replace

import pytest
import torch

from circuits import AttentionPath, Circuit, Head, OneHot, Roles
from circuits.ground_truth import compile_circuit
from circuits.losses.by_label import ByLabel
from circuits.losses.loss import Mean
from circuits.mechanisms import Condition, Uniform
from circuits.model import transformer
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.model.layers import Layers
from circuits.tracing.edges import ALL, EMBED, Composition
from circuits.tracing.patched_head import PatchedHead
from circuits.tracing.path_patching import Receiver, _decision, exchanged, path_patching
from circuits.tracing.unablated import Unablated, senders_below
from tests.architectures import ONLY_3
from tests.handmade import CHAINS, LENGTH, SYMBOLS, ChainTask, InductionTask
from tests.refusals import assert_refused

LOW, HIGH = Head(0, 0), Head(1, 0)
JOIN, ANSWER = AttentionPath(LOW, "pair1.second", "pair1.first"), AttentionPath(HIGH, "query", "pair1.second")
INDUCTION = {
    (EMBED, JOIN, "Q"),  # the place, by which the head finds the position before
    (EMBED, JOIN, "K"),
    (EMBED, JOIN, "V"),
    (EMBED, ANSWER, "Q"),  # the symbol asked for
    ("L0H0", ANSWER, "K"),  # the symbol before, as the head below wrote it
    (EMBED, ANSWER, "V"),  # the answer
}


def holding(result):
    return {(edge.sender, edge.path, edge.input) for edge in result.of()}


def test_an_induction_head_finds_its_place_by_the_embedding_and_the_previous_token_head(model, task, circuit):
    result = path_patching(model, task, circuit, n_examples=32)
    assert holding(result) == INDUCTION
    (key,) = result.of(ANSWER, "K")
    assert key.attention_lost.mean == pytest.approx(result.attention[ANSWER].mean, abs=1e-3)
    assert key.loss_returned.mean == pytest.approx(2.0, abs=1e-3)  # the answer of another instance: two wrong entries
    assert key.sender_role == "pair1.second"
    assert result.of(ANSWER, "Q")[0].sender_role == "query"
    assert sum(edge.sender == ALL for edge in result.edges) == 6  # two paths with three inputs
    assert Composition.model_validate_json(result.model_dump_json()) == result
    table = result.table()
    assert len(table) == len(result.edges) == 9 + 6
    assert table[table.decision == "holds"].attention_lost.max() == pytest.approx(1.0, abs=1e-3)


@dataclass(frozen=True)
class OneInstance(InductionTask):
    """Only one of the queries, so that nothing can be exchanged within an example."""

    def examples(self, n, seed):
        examples = super().examples(n, seed)
        return replace(examples, roles=Roles(self.roles, examples.roles.positions[:, :, :1]))

    def losses(self, outputs, examples):
        at = examples.roles["query"]
        answers = examples.targets.gather(1, at - (LENGTH - CHAINS))[:, 0]  # targets stand in the order of the queries
        wanted = torch.nn.functional.one_hot(answers, SYMBOLS)
        return (outputs[torch.arange(len(at)), at[:, 0]] - wanted).square().sum(dim=1, keepdim=True)


def test_with_one_instance_examples_exchange_what_was_written(model, circuit):
    # A pair stands at the same place in all examples, so the place is the same after the exchange.
    in_the_same_place = {(EMBED, JOIN, "Q"), (EMBED, JOIN, "K")}
    assert holding(path_patching(model, OneInstance(), circuit, n_examples=32)) == INDUCTION - in_the_same_place


def test_in_a_compiled_circuit_exactly_those_edges_hold_that_follow_from_its_construction():
    """At a role on none of its paths a head writes what is known there again, and the MLP takes one copy away.

    So where a symbol was written twice, both who wrote it are senders, and where all of a role is fetched, the MLP too.
    """
    first, second = JOIN, AttentionPath(LOW, "pair2.second", "pair2.first")
    last = AttentionPath(Head(2, 0), "query", "pair2.second")
    heads = {LOW: {path.source: path.target for path in (first, second)}, HIGH: {"query": "pair1.second"}}
    circuit, task = Circuit({**heads, Head(2, 0): {"query": "pair2.second"}}), ChainTask(2)
    result = path_patching(compile_circuit(circuit, task), task, circuit, n_examples=16)
    senders = {
        **{(path, which): ["embed"] for path in (first, second) for which in "QKV"},
        (ANSWER, "Q"): ["embed", "L0H0"],  # x0, at the query
        (ANSWER, "K"): ["L0H0"],  # x0, fetched from the first member of pair 1
        (ANSWER, "V"): ["embed"],  # x1
        (last, "Q"): ["L1H0"],  # x1, fetched from pair 1
        (last, "K"): ["L0H0", "L1H0"],  # x1
        (last, "V"): ["embed", "L0H0", "L1H0", "L1 MLP"],  # x2, and x1 beside it
    }
    assert {place: [edge.sender for edge in result.of(*place)] for place in senders} == senders
    assert len(result.of()) == sum(map(len, senders.values())) < len(result.edges)


def test_where_two_symbols_are_shared_the_exchange_of_one_leaves_a_tie():
    task = ChainTask(2)
    heads = {
        Head(0, 0): {"pair1.second": "pair1.first", "pair2.second": "pair2.first"},
        Head(1, 0): {"pair1.second": "pair2.second", "query": "pair1.second"},
        Head(2, 0): {"query": "pair1.second"},  # both know x0 and x1
    }
    circuit, path = Circuit(heads), AttentionPath(Head(2, 0), "query", "pair1.second")
    result = path_patching(compile_circuit(circuit, task), task, circuit, n_examples=8)
    (lost,) = (edge.attention_lost for edge in result.of(path, "K") if edge.sender == "L0H0")
    assert lost.mean == pytest.approx(0.5, abs=1e-3)  # x0 of pair 1, which no other sender wrote


def test_without_senders_that_write_something_needed_no_edge_holds():
    """A circuit that is not the model's: its second head attends to nothing in particular."""
    task = ChainTask(1)
    planted = Circuit({LOW: {"pair1.second": "pair1.first"}, HIGH: {"query": "pair1.second"}})
    wrong = Circuit({HIGH: {"query": "pair1.first"}})
    assert path_patching(compile_circuit(planted, task), task, wrong, n_examples=16).of() == ()


@pytest.mark.parametrize(
    ("effect", "all_senders", "decision"),
    [
        ([0.2, 0.3] * 8, None, "undecided"),  # 0.25 on average
        ([0.25, 0.35] * 8, None, "holds"),  # 0.30 ± 0.01
        ([0.1, 0.5] * 8, None, "undecided"),  # 0.30 ± 0.05
        ([0.15, 0.25] * 8, None, "fails"),  # 0.20 ± 0.01
        ([0.9], None, "undecided"),  # one example has no standard error
        ([torch.nan] * 8, None, "fails"),  # the path holds nowhere
        ([0.2, 0.3] * 8, [1.0, 1.2] * 8, "undecided"),  # 0.25 of 1.1 is 0.008 ± 0.007 more than the threshold
        ([0.3, 0.5] * 8, [1.0, 1.2] * 8, "holds"),
        ([0.1, 0.2] * 8, [1.0, 1.2] * 8, "fails"),
        ([0.3, 0.5] * 8, [-1.0, 1.2] * 8, "fails"),  # of a loss that is not surely above zero
    ],
)
def test_an_edge_near_its_threshold_or_its_share_of_all_senders_at_once_is_undecided(effect, all_senders, decision):
    name, shares = ("loss", {"loss": torch.tensor(all_senders)}) if all_senders else ("lost", {})
    assert _decision({name: torch.tensor(effect)}, shares) == decision


def test_a_path_that_holds_on_no_example_has_no_edge(random_model, chains):
    ends = ("query", "pair1.second")
    never = OneHot([ends], where={ends: Condition("slot", ends[1], (chains.n_chains,))})  # slots count from 0
    circuit = Circuit({LOW: {"pair1.second": "pair1.first"}, HIGH: never})
    result = path_patching(random_model, chains, circuit, n_examples=8)
    assert result.of(ANSWER) == ()
    assert result.attention[ANSWER].n_examples == 0


def test_what_senders_wrote_adds_up_to_the_residual_stream(random_model, chains):
    examples = chains.examples(5, seed=1)
    run = Unablated(random_model, chains, examples)
    at = examples.roles["pair2.second"]
    names = ["embed", "L0H0", "L0H1", "L0 MLP", "L1H0", "L1H1", "L1 MLP"]
    assert [*map(str, senders_below(2, random_model.cfg))] == names
    bias = sum(block.attn.b_O for block in random_model.blocks[:2])
    assert torch.allclose(run.written(2, at).sum(dim=0) + bias, run.residuals[2][run.example, at], atol=1e-5)


@ONLY_3
@pytest.mark.parametrize("which", "QKV")
def test_patches_are_those_of_plain_hooks(random_model, chains, which):
    """The reference: TransformerLens's split inputs, and one more run with the head's output changed at the source."""
    examples = chains.examples(4, seed=2)
    head, sender = Head(1, 1), 2  # L0H1
    path = AttentionPath(head, "query", "pair1.second")
    there = torch.tensor([[True, False], [True, True], [False, True], [True, True]])
    instances = torch.tensor([[1, 0]] * 4)
    receiver = Receiver(Unablated(random_model, chains, examples), path, there, instances, ())
    pattern, z = receiver.patched(which)
    rows, source = torch.arange(4)[:, None], examples.roles["query"]
    role = examples.roles["query" if which == "Q" else "pair1.second"]
    seen = {}

    def exchange(residual, hook):
        wrote = seen["z0"] @ random_model.blocks[0].attn.W_O[1]
        old = wrote[rows, role]
        residual[rows, role, head.index] += old[rows, instances] - old
        return residual

    def keep(name):
        return lambda value, hook: seen.__setitem__(name, value.clone())

    def change(value, hook):
        for example, instance in there.nonzero().tolist():
            position = source[example, instance]
            value[example, position, head.index] = seen["z"][example, position, head.index]
        return value

    random_model.set_use_split_qkv_input(True)
    try:
        random_model.run_with_hooks(
            examples.inputs,
            fwd_hooks=[
                ("blocks.0.attn.hook_z", lambda value, hook: seen.__setitem__("z0", value[:, :, 1])),
                (f"blocks.1.hook_{which.lower()}_input", exchange),
                ("blocks.1.attn.hook_pattern", keep("pattern")),
                ("blocks.1.attn.hook_z", keep("z")),
            ],
        )
    finally:
        random_model.set_use_split_qkv_input(False)
    outputs = random_model.run_with_hooks(examples.inputs, fwd_hooks=[("blocks.1.attn.hook_z", change)])
    assert torch.allclose(pattern[min(sender, len(pattern) - 1)], seen["pattern"][rows, head.index, source], atol=1e-6)
    assert torch.allclose(z[sender], seen["z"][rows, source, head.index], atol=1e-5)
    (losses,) = receiver.losses(z[sender : sender + 1])
    assert torch.allclose(losses, chains.losses(outputs, examples).mean(dim=1), atol=1e-5)
    assert not torch.allclose(losses, receiver.run.losses, atol=1e-6)


def test_the_split_by_label_adds_up_to_what_is_lost_on_all_instances(random_model, chains):
    examples = chains.examples(6, seed=4)
    path = AttentionPath(Head(2, 1), "query", "pair1.second")
    run = Unablated(random_model, chains, examples)
    receiver = Receiver(run, path, torch.ones(6, 2, dtype=torch.bool), torch.tensor([[1, 0]] * 6), ())
    pattern, _ = receiver.patched("K")
    split = receiver.by_label(pattern)[..., :2]  # two instances in two slots: one with each label
    lost = receiver.on_target(receiver.head.pattern) - receiver.on_target(pattern)
    assert torch.allclose(split.mean(dim=-1), lost[..., None].expand(-1, -1, len(chains.roles)), atol=1e-6)
    assert not torch.allclose(split[..., 0], split[..., 1], atol=1e-6)


def test_the_split_is_at_the_role_whose_labels_make_the_difference():
    roles = ChainTask(1).examples(4, seed=0).roles  # query, pair1.first, pair1.second
    lost = torch.tensor([[0.5, 0.5, 0.5], [0.0, 1.0, float("nan")], [0.0, 1.0, float("nan")]]).expand(4, -1, -1)
    assert ByLabel.of(lost, roles).role == "pair1.first"
    assert str(ByLabel.of(lost, roles, {"pair1.second", "query"})) == "by slot of pair1.second 0: 0.00, 1: 1.00"


def test_every_instance_gets_the_content_of_another_one():
    other = exchanged(100, 4, torch.Generator().manual_seed(0))
    assert (other != torch.arange(4)).all()
    assert (other.sort(dim=1).values == torch.arange(4)).all()
    assert len({*map(tuple, other.tolist())}) == 6  # all cycles of four


def test_a_mean_leaves_out_examples_without_a_value():
    assert Mean.of(torch.tensor([1.0, float("nan"), 3.0])) == Mean(2.0, 1.0, 2)


def test_a_circuit_without_a_path_between_roles_is_refused(model, task):
    assert_refused("no path between roles", path_patching, model, task, Circuit({LOW: Uniform()}))


@ONLY_3
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "other", [{"parallel_attn_mlp": True}, {"positional_embedding_type": "rotary", "rotary_dim": 8}]
)
def test_heads_of_other_hooked_transformers_are_patched_by_hooks(task, circuit, other):
    cfg = {"n_layers": 2, "n_heads": 1, "d_model": 16, "d_head": 8, "n_ctx": 10, "d_vocab": 13, "d_vocab_out": 12}
    strange = HookedTransformer(HookedTransformerConfig(**cfg, act_fn="relu", seed=0, init_mode="gpt2", **other))
    for parameter in strange.parameters():
        parameter.data.normal_()
    run = Unablated(strange, task, task.examples(8, 0))
    head = PatchedHead(run, HIGH, run.examples.roles["query"])
    intact = run.residuals[1][run.example, head.source][None]
    for which in "QKV":
        assert torch.allclose(head.patched(which, head.source, intact)[0], head.pattern, atol=1e-5)


def test_variants_of_long_sequences_run_a_few_at_a_time(random_model, chains, monkeypatch):
    sizes, block = [], Layers.block
    monkeypatch.setattr(transformer, "POSITIONS_AT_ONCE", 4 * chains.n_positions)
    monkeypatch.setattr(
        Layers, "block", lambda self, *given, **named: sizes.append(len(given[1])) or block(self, *given, **named)
    )
    path_patching(random_model, chains, Circuit({HIGH: {"query": "pair1.second"}}), n_examples=16)
    assert max(sizes) == 4
