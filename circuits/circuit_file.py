"""Circuits as YAML files.

name: induction
description: An induction head.
heads:
  L0H0: previous                     # or uniform, identity, first (the first token)
  L1H0:
    query: pair1.second              # the role that attends: the role that it attends to
    elsewhere: zero                  # all other rows: zero (the default), uniform, identity or mean
  L2H0:
    query:                           # rows that hold only on instances with these slots at the to-role
      - {to: pair2.second, slot: [0, 2]}
      - {to: pair2.first, slot: [1]}
      - position 3                   # the default row; or a role, uniform, identity, previous or zero
  L3H0: mean                         # the head's average; or map: one key for each query; or given: any numbers
  L3H1:
    query: {pair1.second: 0.6, pair2.first: 0.2}     # a soft head: so much of its attention, the rest by position
    elsewhere: mean
  L4H0: idle                       # its output is its average, by position; or resample: that of a counterfactual
  L4H1: intact                     # it is needed, and nothing is said of what it does
  L5H0: {mechanism: window, width: 3}     # a mechanism of your own (mechanisms/registry.py)
patterns: {file: circuit.patterns.safetensors, sha256: 5f0c...}     # the file with the numbers of fixed patterns
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import PlainSerializer, PlainValidator

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import FIXED, NAMED, Ends, Mechanism
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.mechanisms.registry import registered
from circuits.mechanisms.soft import Soft
from circuits.utils.files import read_bytes, read_text, to_path, write_together
from circuits.utils.yaml_file import LARGEST_FILE, parse

PATTERNS = ".patterns.safetensors"
LARGEST_PATTERNS = 2**28
KINDS = ", ".join((*NAMED, *FIXED))


def load_circuit(path: Path | str) -> Circuit:
    """Read a circuit from a YAML file; ``Circuit.check`` tests whether it fits a model and its roles.

    Raises:
        BadInput: the file, or that of its fixed patterns, is missing, empty or malformed; the line is named.
    """
    path = to_path(path)
    return parse_circuit(read_text(path, "a circuit in YAML", LARGEST_FILE), str(path), path.parent)


def save_circuit(circuit: Circuit, path: Path | str) -> None:
    """Write a circuit as YAML, and its fixed patterns in a file beside it; ``load_circuit`` reads them back."""
    path = to_path(path)
    if not isinstance(circuit, Circuit):
        raise BadInput(f"circuit: got {type(circuit).__name__}; expected Circuit")
    patterns = path.with_suffix(PATTERNS)
    numbers = {patterns: pack_patterns(circuit)} if fixed_patterns(circuit) else {}
    write_together({**numbers, path: dump_circuit(circuit, patterns.name)})


def dump_circuit(circuit: Circuit, patterns: str = f"circuit{PATTERNS}") -> str:
    """Return the YAML of a circuit; ``patterns`` is the name of the file with its fixed patterns."""
    texts = {"name": circuit.name, "description": circuit.description}
    document: dict[str, object] = {key: text for key, text in texts.items() if text}
    document["heads"] = {str(head): _dumped(mechanism) for head, mechanism in circuit.heads.items()}
    if fixed_patterns(circuit):
        document["patterns"] = {"file": patterns, "sha256": patterns_digest(circuit)}
    as_they_are = f"{circuit.name}{circuit.description}".replace("\n", "").isprintable()  # others are escaped
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=as_they_are, width=100)


def _dumped(mechanism: Mechanism) -> object:
    if isinstance(mechanism, Soft):
        by_source: dict[str, dict[str, float]] = {}
        for (source, target), weight in mechanism.weights:
            by_source.setdefault(source, {})[target] = weight
        return {**by_source, "elsewhere": mechanism.elsewhere.name}
    if isinstance(mechanism, OneHot):
        where = dict(mechanism.where)
        rows: dict[str, list[object]] = {}
        for source, target in mechanism.rows:
            condition = where.get((source, target))
            rows.setdefault(source, []).extend([target] if condition is None else ())
            for one in condition.alternatives if condition else ():
                at = {} if one.at == target else {"at": one.at}
                rows[source].append({"to": target, **at, one.group: [*one.labels]})
        shown = {role: targets if len(targets) > 1 else targets[0] for role, targets in rows.items()}
        elsewhere = mechanism.elsewhere
        return {**shown, "elsewhere": elsewhere if isinstance(elsewhere, str) else elsewhere.name}
    if mechanism.builtin:
        return mechanism.name
    if registered(mechanism.name) is not type(mechanism):
        raise BadInput(f"{mechanism.name} is not registered; expected its class to be registered (circuits.register)")
    mechanism.check()
    parameters = json.loads(json.dumps(mechanism.parameters))  # tuples as lists
    return {"mechanism": mechanism.name, **parameters} if parameters else mechanism.name


class _Placed(BadInput):
    """Bad input whose line is in the message."""


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except _Placed:
        raise
    except BadInput as error:
        raise _Placed(f"{place}: {error}") from error


def parse_circuit(
    text: str, source: str = "circuit", folder: Path | None = None, patterns: bytes | None = None
) -> Circuit:
    """Read a circuit from YAML; ``source`` names it in errors.

    The numbers of its fixed patterns are in ``patterns``, or else in the file that it names, in ``folder``.
    """
    document = parse(text, source)
    if not isinstance(document, dict) or "heads" not in document:
        raise BadInput(f"{source}: the key 'heads' is missing; expected a mapping")
    said: dict[str, Any] = {"name": "", "description": "", "heads": {}, "patterns": {}}
    for key, value in document.items():
        with _at(key.place):
            if key not in said:
                raise BadInput(f"unknown key {key!r}; expected {', '.join(said)}")
            if key == "heads" and not isinstance(value, dict):
                raise BadInput("expected heads with their mechanisms, such as 'L0H0: uniform'")
            said[key] = (
                value if key == "heads" else _numbers(value, folder, patterns) if key == "patterns" else _text(value)
            )
    heads: dict[Head, Mechanism] = {}
    origin: dict[Head | AttentionPath, str] = {}
    for name, value in said["heads"].items():
        with _at(name.place):
            head = Head.of(name)
            if head in heads:
                raise BadInput(f"{head} is given twice")
            heads[head] = _read(head, value, said["patterns"].get(head), origin)
        origin[head] = name.place
    return Circuit(heads, said["name"], said["description"], origin)


def _text(said: Any) -> str:
    if not isinstance(said, str):
        raise BadInput("expected plain text")
    return str(said)


def _read(head: Head, said: Any, numbers: np.ndarray | None, origin: dict[Head | AttentionPath, str]) -> Mechanism:
    """Return the mechanism of a head, and note the lines of its paths."""

    def fixed(kind: str) -> FixedPattern:
        if numbers is None:
            raise BadInput(f"{head} is {kind!r}, but its numbers are in no file; expected the key 'patterns'")
        return FixedPattern(numbers, str(kind))

    if isinstance(said, str):
        return fixed(said) if said in FIXED else NAMED.get(said) or _of_user(head, said, {})
    if not isinstance(said, dict):
        raise BadInput(f"{head} is a list; expected {KINDS}, or paths")
    if "mechanism" in said:
        return _of_user(head, _text(said.pop("mechanism")), {str(key): _value(value) for key, value in said.items()})
    rows: list[Ends] = []
    weights: dict[Ends, Any] = {}
    where: dict[Ends, Condition] = {}
    elsewhere: str | FixedPattern = "zero"
    for source, targets in said.items():
        with _at(source.place):
            if source == "elsewhere":
                elsewhere = fixed(targets) if targets in FIXED else _text(targets)
                continue
            if isinstance(targets, dict) and "to" not in targets and list not in map(type, targets.values()):
                for target, weight in targets.items():
                    weights[str(source), str(target)] = _value(weight)
                    origin[AttentionPath(head, str(source), str(target))] = source.place
                continue
            for one in targets if isinstance(targets, list) else [targets]:
                target, condition = _conditional(one) if isinstance(one, dict) else (_text(one), None)
                ends = str(source), target
                if condition and ends in where:
                    where[ends] |= condition
                    continue
                where |= {ends: condition} if condition else {}
                rows.append(ends)
                origin[AttentionPath(head, *ends)] = source.place
    if not weights:
        return OneHot(rows, elsewhere, where)
    if rows or not isinstance(elsewhere, FixedPattern):
        raise BadInput(
            f"{head} is a soft head; expected weights in all rows, and a fixed pattern elsewhere, such as mean"
        )
    return Soft(weights, elsewhere)


def _conditional(said: Mapping[str, Any]) -> tuple[str, Condition]:
    """Return the target and the condition of a row such as ``{to: role, slot: [0, 2]}``."""
    groups = [key for key in said if key not in ("to", "at")]
    if "to" not in said or len(groups) != 1:
        raise BadInput("expected 'to' and one condition, such as {to: some_role, slot: [0, 2]}")
    (group,), target = groups, _text(said["to"])
    if not isinstance(said[group], list):
        raise BadInput(f"{group} is not a list; expected labels, such as [0, 2]")
    for label in said[group]:
        if not re.fullmatch("0|[1-9][0-9]{0,5}", _text(label)):  # YAML reads 010 as 8
            raise BadInput(f"{group} {label!r}; expected whole numbers of 0 or more")
    return target, Condition(str(group), _text(said.get("at", target)), tuple(map(int, said[group])))


def _of_user(head: Head, name: str, parameters: Mapping[str, object]) -> Mechanism:
    if (kind := registered(name)) is None:
        raise BadInput(f"{head} is {name!r}; expected {KINDS}, paths, or a registered mechanism")
    try:
        made = kind(**parameters)
    except BadInput:
        raise
    except Exception as error:  # user code may raise anything
        raise BadInput(f"{head} is not a valid {name}: {error}") from error
    made.check()
    return made


def _value(said: Any) -> object:
    """Return a parameter of a mechanism: a number, a text, or a tuple of these."""
    if isinstance(said, list):
        return tuple(map(_value, said))
    try:
        return said.value
    except (AttributeError, ValueError, yaml.YAMLError) as error:
        raise BadInput("expected a number, a text, or a list of these") from error


def _numbers(said: Any, folder: Path | None, content: bytes | None) -> dict[Head, np.ndarray]:
    """Return the numbers of the fixed patterns, ``[query, key]`` for each head, whose hash the circuit has."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not isinstance(said, dict) or {*said} != {"file", "sha256"}:
        raise BadInput("expected the file of the fixed patterns: {file: NAME, sha256: HASH}")
    name, digest = _text(said["file"]), _text(said["sha256"])
    if content is None and (folder is None or Path(name).name != name):
        raise BadInput(f"{name!r}; expected the name of a file in the folder of the circuit")
    path = (folder or Path()) / name
    if content is None:
        content = read_bytes(path, "the fixed patterns of a circuit", LARGEST_PATTERNS)
    try:
        numbers = {Head.of(name): weights for name, weights in load(content).items()}
        circuit = Circuit({head: FixedPattern(weights) for head, weights in numbers.items()})
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # safetensors raises all of these
        raise BadInput(f"{path}: not a file of fixed patterns ({error})") from error
    if patterns_digest(circuit) != digest:
        raise BadInput(f"{path}: other fixed patterns than those of the circuit; expected the hash {digest[:12]}...")
    return numbers


def fixed_patterns(circuit: Circuit) -> dict[Head, FixedPattern]:
    """Return the fixed pattern of every head that has one, as its mechanism or ``elsewhere`` of a one-hot mechanism."""
    kinds = circuit.heads.items()
    heads = {head: kind.elsewhere if isinstance(kind, OneHot | Soft) else kind for head, kind in kinds}
    return {head: fixed for head, fixed in heads.items() if isinstance(fixed, FixedPattern)}


def patterns_digest(circuit: Circuit) -> str:
    """Return the SHA-256 of the numbers of all fixed patterns."""
    said = [f"{head} {fixed.digest}" for head, fixed in fixed_patterns(circuit).items()]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def pack_patterns(circuit: Circuit) -> bytes:
    """Return the fixed patterns of a circuit in single precision, as a file of safetensors."""
    from safetensors.numpy import save

    return save({str(head): fixed.array for head, fixed in fixed_patterns(circuit).items()})


def _stored(circuit: Circuit) -> dict[str, str]:
    texts = {"name": circuit.name, "description": circuit.description}
    numbers = base64.b64encode(zlib.compress(pack_patterns(circuit))).decode() if fixed_patterns(circuit) else ""
    return {**texts, "yaml": dump_circuit(circuit), "sha256": circuit.digest, "patterns": numbers}


def _read_stored(stored: Any) -> Circuit:
    if isinstance(stored, Circuit):
        return stored
    if not isinstance(stored, Mapping) or not isinstance(stored.get("yaml"), str):
        raise BadInput("circuit.yaml is missing; expected the circuit's YAML")
    try:
        packed = base64.b64decode(stored.get("patterns", ""), validate=True)
        patterns = zlib.decompressobj().decompress(packed, LARGEST_PATTERNS) if packed else b""
    except (TypeError, ValueError, zlib.error) as error:
        raise BadInput(f"circuit.patterns is damaged ({error})") from error
    circuit = parse_circuit(stored["yaml"], "circuit.yaml", patterns=patterns)
    if circuit.digest != stored.get("sha256"):
        raise BadInput("the circuit was changed; circuit.sha256 is the hash of another circuit")
    return circuit


StoredCircuit = Annotated[Circuit, PlainValidator(_read_stored), PlainSerializer(_stored)]
"""A circuit as a field of a result: its YAML and, compressed, the numbers of its fixed patterns."""
