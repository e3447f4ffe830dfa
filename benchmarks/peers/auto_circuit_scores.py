"""Write the EAP scores of models by auto-circuit; runs in its environment, and is called by against_auto_circuit.py.

ENVIRONMENT/bin/python auto_circuit_scores.py FILE ...     (writes FILE.json: sender, receiver, score)
"""

import inspect
import json
import sys

from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores
from auto_circuit.utils.graph_utils import patchable_model
from safetensors import safe_open
from transformer_lens import HookedTransformer, HookedTransformerConfig

KNOWN = inspect.signature(HookedTransformerConfig).parameters

for path in sys.argv[1:]:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = json.loads(file.metadata()["config"])
    inputs, answers = tensors.pop("inputs"), tensors.pop("answers")
    model = HookedTransformer(HookedTransformerConfig(**{name: own for name, own in config.items() if name in KNOWN}))
    model.load_state_dict(tensors, strict=False)  # all but the masks
    model.set_use_attn_in(True)
    model.set_use_attn_result(True)
    model.set_use_hook_mlp_in(True)
    patchable = patchable_model(model, factorized=True, slice_output="last_seq", separate_qkv=False)
    prompts = PromptDataset(inputs, inputs.roll(1, 0), list(answers), list(answers))
    loader = PromptDataLoader(prompts, seq_len=None, diverge_idx=0, batch_size=len(inputs))
    scores = mask_gradient_prune_scores(patchable, loader, None, "logit", "avg_val", mask_val=0.0)
    edges = [
        (edge.src.name, edge.dest.name, float(scores[edge.dest.module_name][edge.patch_idx]))
        for edge in patchable.edges
    ]
    with open(f"{path}.json", "w") as found:
        json.dump(edges, found)
