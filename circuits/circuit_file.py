"""Circuits as YAML files.

name: induction
description: An induction head.
heads:
  L0H0: previous                     # or uniform, identity
  L1H0:
    query: pair1.second              # the role that attends: the role that it attends to
    elsewhere: zero                  # all other rows: zero (the default), uniform, identity or mean
  L2H0:
    query:                           # rows that hold only on instances with these slots at the to-role
      - {to: pair2.second, slot: [0, 2]}
      - {to: pair2.first, slot: [1]}
      - position 3                   # the default row; or a role, uniform, identity, previous or zero
  L3H0: mean                         # the head's average; or map: one key for each query; or given: any numbers
  L4H0: resample                   # ablated: it attends as on the counterfactual input of the same example
  L5H0: {mechanism: window, width: 3}     # a mechanism of your own (mechanisms/registry.py)
patterns: {file: circuit.patterns.safetensors, sha256: 5f0c...}     # the file with the numbers of fixed patterns
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import PlainSerializer, PlainValidator, ValidationInfo

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import FIXED, SIMPLE, Mechanism, Resample
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.mechanisms.registry import registered
from circuits.pattern_file import PATTERNS, fixed_patterns, load_patterns, patterns_digest, save_patterns
from circuits.utils.files import read_text, to_path, write_atomically
from circuits.utils.yaml_file import LARGEST_FILE, SafeLoader, parse

NAMED: dict[str, Mechanism] = {**SIMPLE, Resample.name: Resample()}


def load_circuit(path: Path | str) -> Circuit:
    """Read a circuit from a YAML file; ``Circuit.check`` tests whether it fits a model and its roles.

    Raises:
        BadInput: the file, or the file of its fixed patterns, is missing, empty or malformed; the message names the
            line.
    """
    path = to_path(path)
    text = read_text(path, "a circuit in YAML", LARGEST_FILE)
    return parse_circuit(text, str(path), path.parent)


def save_circuit(circuit: Circuit, path: Path | str) -> None:
    """Write a circuit as YAML, and its fixed patterns in a file beside it; ``load_circuit`` reads them back."""
    path = to_path(path)
    if not isinstance(circuit, Circuit):
        raise BadInput(f"circuit: got {type(circuit).__name__}; expected Circuit")
    patterns = path.with_suffix(PATTERNS)
    save_patterns(circuit, patterns)
    write_atomically(path, dump_circuit(circuit, patterns.name))


def dump_circuit(circuit: Circuit, patterns: str = f"circuit{PATTERNS}") -> str:
    """Return the YAML of a circuit; ``patterns`` is the name of the file with its fixed patterns."""
    document: dict[str, object] = {}
    if circuit.name:
        document["name"] = circuit.name
    if circuit.description:
        document["description"] = circuit.description
    heads: dict[str, object] = {}
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, OneHot):
            heads[str(head)] = _one_hot(mechanism)
        elif not mechanism.own:
            heads[str(head)] = mechanism.name
        else:
            heads[str(head)] = _own(mechanism)
    document["heads"] = heads
    if fixed_patterns(circuit):
        document["patterns"] = {"file": patterns, "sha256": patterns_digest(circuit)}
    as_they_are = f"{circuit.name}{circuit.description}".replace("\n", "").isprintable()  # others are escaped
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=as_they_are, width=100)


def _one_hot(mechanism: OneHot) -> dict[str, object]:
    where = dict(mechanism.where)
    rows: dict[str, list[object]] = {}
    for source, target in mechanism.rows:
        condition = where.get((source, target))
        own = rows.setdefault(source, [])
        if condition is None:
            own.append(target)
        for one in condition.alternatives if condition else ():
            at = {} if one.at == target else {"at": one.at}
            own.append({"to": target, **at, one.group: [*one.labels]})
    document: dict[str, object] = {source: own[0] if len(own) == 1 else own for source, own in rows.items()}
    elsewhere = mechanism.elsewhere
    return {**document, "elsewhere": elsewhere if isinstance(elsewhere, str) else elsewhere.name}


def _own(mechanism: Mechanism) -> object:
    """Return a user's mechanism as YAML, by its name and parameters."""
    if registered(mechanism.name) is not type(mechanism):
        raise BadInput(f"{mechanism.name} is not registered; expected its class to be registered (circuits.register)")
    mechanism.check()
    parameters = {name: _as_list(value) for name, value in mechanism.parameters.items()}
    return {"mechanism": mechanism.name, **parameters} if parameters else mechanism.name


def _as_list(value: object) -> object:
    return [*map(_as_list, value)] if isinstance(value, tuple) else value


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def parse_circuit(text: str, source: str = "circuit", folder: Path | None = None) -> Circuit:
    """Read a circuit from YAML; ``source`` names it in errors, ``folder`` holds the file of its fixed patterns."""
    root = parse(text, source, lambda text: yaml.compose(text, Loader=SafeLoader))
    return _Reader(source, folder).circuit(root)


def _stored(circuit: Circuit) -> dict[str, str]:
    return {
        "name": circuit.name,
        "description": circuit.description,
        "yaml": dump_circuit(circuit),
        "sha256": circuit.digest,
    }


def _read_stored(stored: Any, info: ValidationInfo) -> Circuit:
    if isinstance(stored, Circuit):
        return stored
    if not isinstance(stored, Mapping) or not isinstance(stored.get("yaml"), str):
        raise BadInput("circuit.yaml is missing; expected the circuit's YAML")
    circuit = parse_circuit(stored["yaml"], "circuit.yaml", (info.context or {}).get("folder"))
    if circuit.digest != stored.get("sha256"):
        raise BadInput("the circuit was changed; circuit.sha256 is the hash of another circuit")
    return circuit


StoredCircuit = Annotated[Circuit, PlainValidator(_read_stored), PlainSerializer(_stored)]
"""A circuit as a field of a result. The numbers of fixed patterns are in a file of their own: to read them back, the
validation's context names its ``folder``."""


class _Reader:
    """Reads a circuit from YAML nodes, because only nodes have line numbers."""

    def __init__(self, source: str, folder: Path | None) -> None:
        self.source, self.folder = source, folder
        self.patterns: dict[Head, np.ndarray] = {}
        self.origin: dict[Head | AttentionPath, str] = {}

    def circuit(self, root: yaml.Node | None) -> Circuit:
        if not isinstance(root, yaml.MappingNode):
            raise BadInput(f"{self.source}: expected a mapping with the key 'heads'")
        entries = self.entries(root)
        for key, (line, _) in entries.items():
            if key not in ("name", "description", "heads", "patterns"):
                raise BadInput(f"{line}: unknown key {key!r}; expected name, description, heads and patterns")
        if "heads" not in entries:
            raise BadInput(f"{self.source}: the key 'heads' is missing")
        if "patterns" in entries:
            self.patterns = self.fixed(*entries["patterns"])
        line, node = entries["heads"]
        if not isinstance(node, yaml.MappingNode):
            raise BadInput(f"{line}: expected heads with their mechanisms, such as 'L0H0: uniform'")
        heads = {}
        for text, (line, value) in self.entries(node).items():
            try:
                head = Head.parse(text)
                if head in heads:
                    raise BadInput(f"{head} is given twice")
                heads[head] = self.mechanism(head, value, line)
            except BadInput as error:
                message = str(error)
                raise BadInput(message if message.startswith(self.source) else f"{line}: {message}") from None
            self.origin[head] = line
        texts = {key: self.text(entries[key][1], entries[key][0]) for key in ("name", "description") if key in entries}
        return Circuit(heads, texts.get("name", ""), texts.get("description", ""), self.origin)

    def mechanism(self, head: Head, node: yaml.Node, line: str) -> Mechanism:
        if isinstance(node, yaml.ScalarNode):
            name = self.text(node, line)
            if name in FIXED:
                return self.pattern(head, name, line)
            return NAMED[name] if name in NAMED else self.own(head, name, {}, line)
        if not isinstance(node, yaml.MappingNode):
            raise BadInput(f"{line}: {head} is a list; expected {', '.join((*NAMED, *FIXED))}, or paths")
        if "mechanism" in (entries := self.entries(node)):
            parameters = {key: self.value(value, line) for key, (line, value) in entries.items() if key != "mechanism"}
            return self.own(head, self.text(entries["mechanism"][1], line), parameters, line)
        rows: list[tuple[str, str]] = []
        where: dict[tuple[str, str], Condition] = {}
        elsewhere: str | FixedPattern = "zero"
        for source, (row_line, value) in entries.items():
            if source == "elsewhere":
                text = self.text(value, row_line)
                elsewhere = self.pattern(head, text, row_line) if text in FIXED else text
                continue
            for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(one, yaml.MappingNode):
                    target, condition = self.conditional(one, row_line)
                    if (source, target) in where:
                        where[source, target] |= condition
                        continue
                    where[source, target] = condition
                else:
                    target = self.text(one, row_line)
                rows.append((source, target))
                self.origin[AttentionPath(head, source, target)] = row_line
        return OneHot(rows, elsewhere, where)

    def own(self, head: Head, name: str, parameters: Mapping[str, object], line: str) -> Mechanism:
        """Return a user's mechanism."""
        kind = registered(name)
        if kind is None:
            raise BadInput(
                f"{line}: {head} is {name!r}; expected {', '.join((*NAMED, *FIXED))}, paths, or a registered mechanism"
            )
        try:
            made = kind(**parameters)
        except BadInput:
            raise
        except Exception as error:  # user code may raise anything
            raise BadInput(f"{line}: {head} is not a valid {name}: {error}") from error
        made.check()
        return made

    def value(self, node: yaml.Node, line: str) -> object:
        """Return a parameter of a mechanism: a number, a text, or a tuple of these."""
        try:
            return _as_tuple(SafeLoader("").construct_object(node, deep=True))
        except yaml.YAMLError as error:
            raise BadInput(f"{line}: expected a number, a text, or a list of these") from error

    def conditional(self, node: yaml.MappingNode, line: str) -> tuple[str, Condition]:
        """Return the target and the condition of a row such as ``{to: role, slot: [0, 2]}``."""
        entries = self.entries(node)
        groups = [key for key in entries if key not in ("to", "at")]
        if "to" not in entries or len(groups) != 1:
            raise BadInput(f"{line}: expected 'to' and one condition, such as {{to: some_role, slot: [0, 2]}}")
        target = self.text(entries["to"][1], line)
        labels_line, labels = entries[groups[0]]
        if not isinstance(labels, yaml.SequenceNode):
            raise BadInput(f"{labels_line}: {groups[0]} is not a list; expected labels, such as [0, 2]")
        numbers = [self.text(label, labels_line) for label in labels.value]
        for number in numbers:
            if not re.fullmatch("0|[1-9][0-9]{0,5}", number):  # YAML reads 010 as 8
                raise BadInput(f"{labels_line}: {groups[0]} {number!r}; expected whole numbers of 0 or more")
        at = self.text(entries["at"][1], line) if "at" in entries else target
        return target, Condition(groups[0], at, tuple(map(int, numbers)))

    def pattern(self, head: Head, kind: str, line: str) -> FixedPattern:
        """Return the fixed pattern of a head."""
        if head not in self.patterns:
            raise BadInput(f"{line}: {head} is {kind!r}, but its numbers are in no file; expected the key 'patterns'")
        return FixedPattern(self.patterns[head], kind)

    def fixed(self, line: str, node: yaml.Node) -> dict[Head, np.ndarray]:
        """Return the numbers of all fixed patterns, by head."""
        entries = self.entries(node) if isinstance(node, yaml.MappingNode) else {}
        if {*entries} != {"file", "sha256"}:
            raise BadInput(f"{line}: expected the file of the fixed patterns: {{file: NAME, sha256: HASH}}")
        name, digest = (self.text(entries[key][1], entries[key][0]) for key in ("file", "sha256"))
        if self.folder is None or Path(name).name != name:
            raise BadInput(f"{line}: {name!r}; expected the name of a file in the folder of the circuit")
        return load_patterns(self.folder / name, digest)

    def entries(self, node: yaml.MappingNode) -> dict[str, tuple[str, yaml.Node]]:
        """Return the keys with their lines and values; a repeated key is an error."""
        if node.tag != "tag:yaml.org,2002:map":
            raise BadInput(f"{self.source}, line {node.start_mark.line + 1}: unexpected tag {node.tag}")
        found: dict[str, tuple[str, yaml.Node]] = {}
        for key, value in node.value:
            line = f"{self.source}, line {key.start_mark.line + 1}"
            text = self.text(key, line)
            if text in found:
                raise BadInput(f"{line}: {text!r} is given twice")
            found[text] = line, value
        return found

    def text(self, node: yaml.Node, line: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise BadInput(f"{line}: expected plain text")
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            raise BadInput(f"{line}: expected plain text; got the tag {node.tag}")
        return node.value
