"""Circuits as YAML that a person would write.

name: induction
description: An induction head.
heads:
  L0H0: previous                     # or uniform, identity
  L1H0:
    query: pair1.second              # from-role: to-role
    elsewhere: zero                  # rows on no path: zero (the default), uniform or identity
"""

from pathlib import Path as FilePath

import yaml

from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.files import read_text, write_atomically
from circuits.mechanisms import SIMPLE, Mechanism, OneHot
from circuits.yaml_file import LARGEST_FILE, SafeLoader, parse


def load_circuit(path: FilePath) -> Circuit:
    """Read a circuit; ``Circuit.check`` then holds it against a model and its roles.

    Raises:
        BadInput: missing, empty or malformed; the message names the line.
    """
    text = read_text(path, "a circuit in YAML", LARGEST_FILE)
    return parse_circuit(text, str(path))


def save_circuit(circuit: Circuit, path: FilePath) -> None:
    """Write a circuit; ``load_circuit`` gives an equal one back."""
    write_atomically(path, dump_circuit(circuit))


def dump_circuit(circuit: Circuit) -> str:
    """The YAML of a circuit."""
    document: dict[str, object] = {}
    if circuit.name:
        document["name"] = circuit.name
    if circuit.description:
        document["description"] = circuit.description
    heads: dict[str, object] = {}
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, OneHot):
            heads[str(head)] = {**dict(mechanism.rows), "elsewhere": mechanism.elsewhere}
        else:
            heads[str(head)] = mechanism.name
    document["heads"] = heads
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def parse_circuit(text: str, source: str = "circuit") -> Circuit:
    """Read a circuit from YAML; ``source`` names it in errors."""
    root = parse(text, source, lambda text: yaml.compose(text, Loader=SafeLoader))
    return _Reader(source).circuit(root)


class _Reader:
    """Walks the YAML nodes, because only nodes know their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.origin: dict[Head | Path, str] = {}

    def circuit(self, root: yaml.Node | None) -> Circuit:
        if not isinstance(root, yaml.MappingNode):
            raise BadInput(f"{self.source}: expected a mapping with the key 'heads'")
        entries = self.entries(root)
        for key, (line, _) in entries.items():
            if key not in ("name", "description", "heads"):
                raise BadInput(f"{line}: unknown key {key!r}; expected name, description and heads")
        if "heads" not in entries:
            raise BadInput(f"{self.source}: the key 'heads' is missing")
        line, node = entries["heads"]
        if not isinstance(node, yaml.MappingNode):
            raise BadInput(f"{line}: expected heads with their mechanisms, such as 'L0H0: uniform'")
        heads = {}
        for text, (line, value) in self.entries(node).items():
            try:
                head = Head.parse(text)
                if head in heads:
                    raise BadInput(f"{head} stands twice")
                heads[head] = self.mechanism(head, value, line)
            except BadInput as error:
                message = str(error)
                raise BadInput(message if message.startswith(self.source) else f"{line}: {message}") from None
            self.origin[head] = line
        texts = {key: self.text(entries[key][1], entries[key][0]) for key in ("name", "description") if key in entries}
        return Circuit(heads, texts.get("name", ""), texts.get("description", ""), self.origin)

    def mechanism(self, head: Head, node: yaml.Node, line: str) -> Mechanism:
        if isinstance(node, yaml.ScalarNode):
            if self.text(node, line) not in SIMPLE:
                raise BadInput(f"{line}: {head} is {node.value!r}; expected {', '.join(SIMPLE)}, or paths")
            return SIMPLE[node.value]
        if not isinstance(node, yaml.MappingNode):
            raise BadInput(f"{line}: {head} is a list; expected {', '.join(SIMPLE)}, or paths")
        rows, elsewhere = {}, "zero"
        for source, (row_line, value) in self.entries(node).items():
            target = self.text(value, row_line)
            if source == "elsewhere":
                elsewhere = target
            else:
                rows[source] = target
                self.origin[Path(head, source, target)] = row_line
        return OneHot(rows, elsewhere)

    def entries(self, node: yaml.MappingNode) -> dict[str, tuple[str, yaml.Node]]:
        """Keys with their lines and values; a key that stands twice is an error."""
        if node.tag != "tag:yaml.org,2002:map":
            raise BadInput(f"{self.source}, line {node.start_mark.line + 1}: unexpected tag {node.tag}")
        found: dict[str, tuple[str, yaml.Node]] = {}
        for key, value in node.value:
            line = f"{self.source}, line {key.start_mark.line + 1}"
            text = self.text(key, line)
            if text in found:
                raise BadInput(f"{line}: {text!r} stands twice")
            found[text] = line, value
        return found

    def text(self, node: yaml.Node, line: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise BadInput(f"{line}: expected plain text")
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            raise BadInput(f"{line}: expected plain text; got the tag {node.tag}")
        return node.value
