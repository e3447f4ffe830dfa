"""Compile three of tracr's programs, and write their weights under the names of a HookedTransformer.

It needs JAX, so it runs in an environment of its own, once; ``programs.py`` reads the files.

    python -m venv tracr && tracr/bin/pip install tracr-pypi==1.0.0 safetensors
    tracr/bin/python benchmarks/tracr/compile_programs.py data/tracr

Lindner et al. 2023, *Tracr: Compiled Transformers as a Laboratory for Interpretability*. The sequences have ``BOS`` and
four tokens. Every file also has some inputs, and tracr's own outputs for them.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tracr.compiler import compiling, lib
from tracr.rasp import rasp

LENGTH, EXAMPLES = 4, 20
PROGRAMS = {  # the program, its tokens, and how the names of its output dimensions begin
    "frac_prevs": (lib.make_frac_prevs(rasp.tokens == "x"), "wxyz", "frac_prevs"),
    "reverse": (lib.make_reverse(rasp.tokens), "abc", "reverse"),
    "sort_unique": (lib.make_sort_unique(rasp.tokens, rasp.tokens), (1, 2, 3, 4, 5, 6), "sort"),
}


def compiled(name: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Return a program's weights and its sizes."""
    program, tokens, output = PROGRAMS[name]
    model = compiling.compile_rasp_to_model(program, vocab={*tokens}, max_seq_len=LENGTH + 1, compiler_bos="BOS")
    size, own = model.model_config, {f"{a}/{b}": np.array(x) for a, c in model.params.items() for b, x in c.items()}
    n_heads, d_head, d_model = size.num_heads, size.key_size, own["token_embed/embeddings"].shape[1]
    weights = {"embed.W_E": own["token_embed/embeddings"], "pos_embed.W_pos": own["pos_embed/embeddings"]}
    for layer in range(size.num_layers):
        there, here = f"transformer/layer_{layer}", f"blocks.{layer}"
        for letter, word in (("Q", "query"), ("K", "key"), ("V", "value")):
            matrix = own[f"{there}/attn/{word}/w"].reshape(d_model, n_heads, d_head)
            weights[f"{here}.attn.W_{letter}"] = matrix.transpose(1, 0, 2)
            weights[f"{here}.attn.b_{letter}"] = own[f"{there}/attn/{word}/b"].reshape(n_heads, d_head)
        weights[f"{here}.attn.W_O"] = own[f"{there}/attn/linear/w"].reshape(n_heads, d_head, d_model)
        weights[f"{here}.attn.b_O"] = own[f"{there}/attn/linear/b"]
        for number, side in ((1, "in"), (2, "out")):
            weights[f"{here}.mlp.W_{side}"] = own[f"{there}/mlp/linear_{number}/w"]
            weights[f"{here}.mlp.b_{side}"] = own[f"{there}/mlp/linear_{number}/b"]
    read = [place for place, label in enumerate(model.residual_labels) if str(label).split(":")[0].startswith(output)]
    weights["unembed.W_U"] = np.eye(d_model)[:, read]
    weights["unembed.b_U"] = np.zeros(len(read))
    distinct = name == "sort_unique"  # it only sorts tokens that differ
    every = [text for text in itertools.product(tokens, repeat=LENGTH) if len({*text}) == LENGTH or not distinct]
    texts = [["BOS", *text] for text in every[:: len(every) // EXAMPLES]]
    weights["inputs"] = np.array([model.input_encoder.encode(text) for text in texts])
    outputs = [np.array(model.apply(text).transformer_output)[0][:, read] for text in texts]
    weights["outputs"] = np.array(outputs)
    encoding = model.input_encoder.encoding_map
    sizes = {
        **{"n_layers": size.num_layers, "n_heads": n_heads, "d_head": d_head, "d_mlp": size.mlp_hidden_size},
        **{"bos": encoding["BOS"], "tokens": [encoding[token] for token in tokens]},
        "read": [str(model.residual_labels[place]) for place in read],
    }
    return weights, sizes


if __name__ == "__main__":
    for name in PROGRAMS:
        weights, sizes = compiled(name)
        kinds = {key: np.int64 if key == "inputs" else np.float32 for key in weights}
        arrays = {key: np.ascontiguousarray(own, kinds[key]) for key, own in weights.items()}
        save_file(arrays, Path(sys.argv[1]) / f"{name}.safetensors", {"sizes": json.dumps(sizes)})
        print(name, sizes)
