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
from circuits.mechanisms.mechanism import Idle, Intact, Mechanism
from circuits.utils.files import read_text, to_path, write_atomically

HEAD = re.compile(r"a([0-9]{1,6})\.h([0-9]{1,6})(?![0-9])")
EXPECTED = "expected the JSON of a graph: its cfg (n_layers, n_heads), and nodes as a0.h3 or edges as a0.h3->a5.h5<k>"
LARGEST, MOST = 2**28, 4096  # bytes, and layers or heads of a layer; all edges of GPT-2 small take 3 MB


def read_heads(path: Path | str, n: int | None = None) -> Circuit:
    """Return the heads of a graph of another tool as a circuit in which they are intact, all others idle.

    ``validate`` judges it. MLPs stay, as in every circuit. Of edges only the heads at their ends are taken.

    Args:
        path: the JSON file. If its heads have scores of their own, these and their marks count, else the edges.
        n: take the heads with the ``n`` largest scores, by size; of edges, a head has that of its largest edge. By
            default those that the file marks: themselves, or at an edge in the graph.

    Raises:
        BadInput: the file is no such graph, marks no head or all, or the scores at the ``n``-th place are equal.
    """
    path = to_path(path)
    text = read_text(path, "a graph of EAP-IG", LARGEST)
    try:
        graph = json.loads(text)
        size = [range(whole(name, graph["cfg"][name], 1, MOST)) for name in ("n_layers", "n_heads")]
        nodes, edges = ({key: _entry(one) for key, one in (graph.get(of) or {}).items()} for of in ("nodes", "edges"))
        named = edges if edges and not any("score" in nodes[name] for name in nodes if heads_in(name)) else nodes
        entries = [(head, one) for name, one in named.items() for head in heads_in(name)]
        if beyond := [head for head, _ in entries if head.layer not in size[0] or head.index not in size[1]]:
            raise BadInput(f"{beyond[0]} is beyond the {len(size[0])} layers of {len(size[1])} heads of its cfg")
        marked = {head for head, one in entries if {True: True, False: False}[one.get("in_graph", False)]}
        if n is not None:
            scores = [(head, abs(real(f"the score of {head}", one["score"]))) for head, one in entries]
            largest = dict(sorted(scores, key=lambda one: one[1]))  # the largest of a head is the last, and stays
            order = sorted(largest, key=lambda head: -largest[head])
            marked = {*order[: whole("n", n, 1, len(order))]}
            if len({largest[head] for head in order[n - 1 : n + 1]}) == 1 and n < len(order):
                raise BadInput(f"{order[n - 1]} and {order[n]} have the same score; choose another n than {n}")
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: {error.args[0] if isinstance(error, BadInput) else EXPECTED}") from error
    heads: dict[Head, Mechanism] = {Head(*one): Idle() for one in product(*size)}
    if len(marked) in (0, len(heads)) and n is None:
        raise BadInput(f"{path}: {'all' if marked else 'no'} heads are in the graph; in Python use read_heads(path, n)")
    heads |= dict.fromkeys(sorted(marked), Intact())
    return Circuit(heads, path.stem, f"The heads of {path.name}; all others are idle.")


def _entry(one: Any) -> dict[str, Any]:
    """Return what is said of a node or an edge; older versions of EAP-IG write a mark alone, others empty scores."""
    return {"in_graph": one} if isinstance(one, bool) else {key: said for key, said in one.items() if said is not None}


def heads_in(name: str) -> list[Head]:
    """Return the heads in the name of a node or an edge."""
    return [Head(int(layer), int(index)) for layer, index in HEAD.findall(name)]


def write_scores(path: Path | str, scores: Mapping[Head | str, float], cfg: Any) -> None:
    """Write the scores of all heads as MIB reads them; what has no score (MLPs, the input) stays in every circuit.

    Args:
        path: the JSON file.
        scores: the score of every head, such as ``L5H0``.
        cfg: the model's config: its number of layers and heads, and ``d_model``.

    Raises:
        BadInput: a head has no score, or is not the model's, or the file cannot be written.
    """
    scores = {Head.of(head): score for head, score in scores.items()}
    heads = [Head(*place) for place in product(range(cfg.n_layers), range(cfg.n_heads))]
    if odd := sorted({*scores} ^ {*heads}):
        wrong = "is not in the model" if odd[0] in scores else "has none"
        raise BadInput(f"the scores: {odd[0]} {wrong}; expected one for each of its {len(heads)} heads")
    nodes: dict[str, Any] = {name: {"in_graph": True} for name in ("input", *(f"m{n}" for n in range(cfg.n_layers)))}
    for head in heads:
        nodes[f"a{head.layer}.h{head.index}"] = {"in_graph": True, "score": real(f"the score of {head}", scores[head])}
    sizes = {name: getattr(cfg, name) for name in ("n_layers", "n_heads", "d_model")}
    sizes["parallel_attn_mlp"] = bool(getattr(cfg, "parallel_attn_mlp", False))
    graph = {"cfg": sizes, "nodes": {**nodes, "logits": {"in_graph": True}}, "edges": {}}
    write_atomically(to_path(path), json.dumps(graph) + "\n")
