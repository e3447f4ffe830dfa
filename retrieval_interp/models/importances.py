"""Heads and their scores, as EAP-IG and the circuit track of MIB (Mueller et al. 2025) write them: read and written.

{"cfg": {"n_layers": 12, "n_heads": 12, ...}, "nodes": {"a0.h3": {"in_graph": true, "score": 0.2}, "m0": ...},
 "edges": {"a0.h3->a5.h5<k>": {"in_graph": true, "score": 0.1}, ...}}
"""

import json
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from circuits.circuit import Circuit, Head
from circuits.errors import BadInput, real, whole
from circuits.mechanisms.mechanism import Idle, Intact
from circuits.utils.files import read_text, to_path, write_atomically

HEAD = re.compile(r"a([0-9]{1,6})\.h([0-9]{1,6})(?![0-9])")
EXPECTED = "expected the JSON of a graph: its cfg (n_layers, n_heads), and nodes as a0.h3 or edges as a0.h3->a5.h5<k>"
LARGEST, MOST = 2**28, 4096  # bytes, and layers or heads of a layer; all edges of GPT-2 small take 3 MB


def read_heads(path: Path | str, n: int | None = None) -> Circuit:
    """Return the heads of a graph of another tool as a circuit in which they are intact, all others idle.

    ``validate`` judges it. MLPs stay, as in every circuit. Of edges only the heads at their ends are taken.

    Args:
        path: the JSON file.
        n: take the heads with the ``n`` largest scores, by size; of edges, a head has that of its largest edge. By
            default those that the file marks: at an edge in the graph, or, in a file without edges, themselves.

    Raises:
        BadInput: the file is no such graph, or has no such heads.
    """
    path = to_path(path)
    text = read_text(path, "a graph of EAP-IG", LARGEST)
    try:
        graph = json.loads(text)
        size = [range(whole(name, graph["cfg"][name], 1, MOST)) for name in ("n_layers", "n_heads")]
        named = graph.get("edges") or graph["nodes"]
        entries = [(head, one) for name, one in named.items() for head in heads_in(name)]
        marked = {head for head, one in entries if one.get("in_graph", False)}
        if n is not None:
            scores = [(head, abs(real(f"the score of {head}", one["score"]))) for head, one in entries]
            largest = dict(sorted(scores, key=lambda one: one[1]))  # the largest of a head is the last, and stays
            marked = {*sorted(largest, key=lambda head: -largest[head])[: whole("n", n, 1, len(largest))]}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: {error.args[0] if isinstance(error, BadInput) else EXPECTED}") from error
    if not marked:
        raise BadInput(f"{path}: no head is in the graph; choose some by their scores, or {EXPECTED}")
    heads = {Head(*one): Idle() for one in product(*size)} | dict.fromkeys(sorted(marked), Intact())
    return Circuit(heads, name=path.stem, description=f"The heads of {path.name}; all others are idle.")


def heads_in(name: str) -> list[Head]:
    """Return the heads in the name of a node or an edge."""
    return [Head(int(layer), int(index)) for layer, index in HEAD.findall(name)]


def write_scores(path: Path | str, scores: Mapping[Head | str, float], cfg: Any) -> None:
    """Write the scores of all heads as MIB reads them; what has none (MLPs, the input) stays in every circuit.

    Args:
        path: the JSON file.
        scores: the score of every head, such as ``L5H0``.
        cfg: the model's config: its number of layers and heads, and ``d_model``.

    Raises:
        BadInput: a head has no score, or the file cannot be written.
    """
    scores = {Head.of(head): score for head, score in scores.items()}
    heads = [Head(*place) for place in product(range(cfg.n_layers), range(cfg.n_heads))]
    if missing := [head for head in heads if head not in scores]:
        raise BadInput(f"the scores: {missing[0]} has none; expected one for each of {len(heads)} heads")
    most = max(abs(real(f"the score of {head}", scores[head])) for head in heads)
    always = ["input", *(f"m{layer}" for layer in range(cfg.n_layers))]
    nodes = {name: {"in_graph": True, "score": most} for name in always}
    nodes |= {f"a{head.layer}.h{head.index}": {"in_graph": True, "score": float(scores[head])} for head in heads}
    sizes = {name: getattr(cfg, name) for name in ("n_layers", "n_heads", "d_model")}
    sizes["parallel_attn_mlp"] = bool(getattr(cfg, "parallel_attn_mlp", False))
    graph = {"cfg": sizes, "nodes": {**nodes, "logits": {"in_graph": True}}, "edges": {}}
    write_atomically(to_path(path), json.dumps(graph) + "\n")
