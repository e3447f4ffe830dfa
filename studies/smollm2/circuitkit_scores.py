"""Scores of CircuitKit 0.1.8 for the heads of SmolLM2, for ``peers.py``, in an environment of its own.

    python studies/smollm2/peers.py --prompts prompts.json           here: the prompts, as tokens
    python -m venv ck; ck/bin/pip install circuitkit==0.1.8          it needs TransformerLens 2 and transformers 4
    ck/bin/pip install 'pyarrow<20'                                  NumPy 1 goes with no later one
    ck/bin/python studies/smollm2/circuitkit_scores.py prompts.json CACHE/smollm2

Its EAP and EAP-IG of nodes run on the same tokens and the same metric. TransformerLens 2 does not
know SmolLM2, so its config is written here; the logits are compared with those of transformers. The scores go into
``scores/``, with the seconds that they took.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import torch
from circuitkit.backends.eap import attribute, attribute_node
from circuitkit.backends.eap.graph import Graph
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_llama_weights
from transformers import AutoConfig, AutoModelForCausalLM

AT_ONCE, STEPS = 16, 5
HERE = Path(__file__).parent


def smollm2(folder):
    """SmolLM2 as a HookedTransformer of TransformerLens 2, with the logits of transformers."""
    config = AutoConfig.from_pretrained(folder, rope_theta=100000.0)  # transformers 4 does not read rope_parameters
    theirs = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    cfg = HookedTransformerConfig(
        n_layers=30, d_model=576, n_heads=9, n_key_value_heads=3, d_head=64, d_mlp=1536, n_ctx=512, d_vocab=49152,
        act_fn="silu", gated_mlp=True, normalization_type="RMS", final_rms=True, eps=config.rms_norm_eps,
        positional_embedding_type="rotary", rotary_base=100000, rotary_dim=64, rotary_adjacent_pairs=False,
        original_architecture="LlamaForCausalLM", dtype=torch.float32, device="cpu",
    )  # fmt: skip
    model = HookedTransformer(cfg)
    state = convert_llama_weights(theirs, cfg)
    plain = dict.fromkeys(("fold_ln", "center_writing_weights", "center_unembed", "fold_value_biases"), False)
    model.load_and_process_state_dict(state, **plain)
    tokens = torch.arange(100, 120)[None]
    with torch.no_grad():
        apart = (model(tokens) - theirs(tokens).logits).abs().max().item()
    if apart > 0.01:
        raise SystemExit(f"the logits differ from those of transformers by {apart:.3g}; expected at most 0.01")
    model.set_use_attn_result(True)
    model.set_ungroup_grouped_query_attention(True)
    return model


def tokens_of(model, clean, corrupted, **_):
    """The tokens as they are: CircuitKit would put a start token before texts."""
    here, there = torch.tensor(clean), torch.tensor(corrupted)
    mask = torch.ones_like(here)
    return here, there, mask, mask, mask.sum(dim=1), here.shape[1]


def heads(scores):
    """The part of node scores that is about heads, by name; the order is input, heads and MLP of each layer."""
    return {f"a{n}.h{h}": {"score": scores[1 + 10 * n + h].item()} for n in range(30) for h in range(9)}


if __name__ == "__main__":
    attribute_node.tokenize_batch_pair = attribute.tokenize_batch_pair = tokens_of
    model = smollm2(sys.argv[2])
    for task, own in json.loads(Path(sys.argv[1]).read_text()).items():
        each = [*zip(own["clean"], own["corrupted"], own["end"], own["answers"], strict=True)]
        batches = [tuple(zip(*each[n : n + AT_ONCE], strict=True)) for n in range(0, len(each), AT_ONCE)]
        loader = [(clean, corrupted, (end, answers)) for clean, corrupted, end, answers in batches]

        def metric(logits, clean_logits, lengths, label):
            at_end = logits[torch.arange(len(logits))[:, None], torch.tensor(label[0])]  # [prompt, instance, token]
            right, wrong = at_end.gather(2, torch.tensor(label[1])).unbind(dim=2)
            return (wrong - right).mean()

        methods = {
            "EAP nodes": partial(attribute_node.get_scores_eap, dataloader=loader, metric=metric, quiet=True),
            "EAP-IG nodes": partial(
                attribute_node.get_scores_eap_ig, dataloader=loader, metric=metric, steps=STEPS, quiet=True
            ),
        }
        for name, method in methods.items():
            graph, start = Graph.from_model(model, node_scores=True), time.monotonic()
            scores = method(model, graph)
            document = {"seconds": round(time.monotonic() - start, 1), "nodes": heads(scores)}
            path = HERE / "scores" / f"{task}_CircuitKit_{name.replace(' ', '_')}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(document) + "\n")
            print(task, name, document["seconds"], flush=True)
