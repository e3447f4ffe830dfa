"""Fixed patterns in a safetensors file beside the circuit's YAML file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from circuits.circuit import Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import OneHot
from circuits.utils.files import read_bytes, write_atomically

PATTERNS = ".patterns.safetensors"
LARGEST_FILE = 2**28


def fixed_patterns(circuit: Circuit) -> dict[Head, FixedPattern]:
    """Return the fixed pattern of every head that has one, as its mechanism or ``elsewhere`` of a one-hot mechanism."""
    found = {}
    for head, mechanism in circuit.heads.items():
        own = mechanism.elsewhere if isinstance(mechanism, OneHot) else mechanism
        if isinstance(own, FixedPattern):
            found[head] = own
    return found


def patterns_digest(circuit: Circuit) -> str:
    """Return the SHA-256 of the numbers of all fixed patterns."""
    said = [f"{head} {fixed.digest}" for head, fixed in fixed_patterns(circuit).items()]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def save_patterns(circuit: Circuit, path: Path) -> None:
    """Write the fixed patterns of a circuit in single precision; write no file if it has none."""
    from safetensors.numpy import save

    found = fixed_patterns(circuit)
    if found:
        write_atomically(path, save({str(head): fixed.array for head, fixed in found.items()}))


def load_patterns(path: Path, digest: str) -> dict[Head, np.ndarray]:
    """Return the numbers of the fixed patterns of a circuit, ``[query, key]`` for each head.

    Raises:
        BadInput: the file is missing or damaged, or its numbers do not have the hash ``digest``.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes(path, "the fixed patterns of a circuit", LARGEST_FILE)
    try:
        found = {Head.parse(name): weights for name, weights in load(content).items()}
        circuit = Circuit({head: FixedPattern(weights) for head, weights in found.items()})
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # safetensors raises all of these
        raise BadInput(f"{path}: not a file of fixed patterns ({error})") from error
    if patterns_digest(circuit) != digest:
        raise BadInput(f"{path}: other fixed patterns than those of the circuit; expected the hash {digest[:12]}...")
    return found
