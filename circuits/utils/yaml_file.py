"""Read YAML without aliases and tags, as texts that know their lines; a malformed file gives one clear line."""

from typing import Any

import yaml

from circuits.errors import BadInput

try:  # five times as fast
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

LARGEST_FILE = 1_000_000
DEEPEST = 30  # levels of lists and mappings; parsers recurse for each
TAG = "tag:yaml.org,2002:"


class Text(str):
    """A key or a value of a file, as it is written, with its place ("circuit.yaml, line 3")."""

    place: str
    node: yaml.ScalarNode

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def value(self) -> Any:
        """What YAML reads: a number, a truth value, a date, nothing, or a text."""
        return SafeLoader("").construct_object(self.node)


def parse(text: str, source: str) -> Any:
    """Parse YAML as lists, mappings and ``Text``; ``source`` names it in errors. Nothing at all is None.

    Raises:
        BadInput: the text is not YAML, is nested too deeply, has a key twice, or has tags or aliases (with these, a few
            lines can fill all memory).
    """
    try:
        depth = 0
        for event in yaml.parse(text, Loader=SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise BadInput(f"{source}: YAML aliases are not allowed")
            if depth > DEEPEST:
                raise BadInput(f"{source}: nested too deeply (more than {DEEPEST} levels)")
        root = yaml.compose(text, Loader=SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise BadInput(f"{source}{where}: not YAML ({getattr(error, 'problem', None) or error})") from error
    return None if root is None else _plain(root, source)


def _plain(node: yaml.Node, source: str) -> Any:
    place = f"{source}, line {node.start_mark.line + 1}"
    kind = node.tag.removeprefix(TAG)
    if kind == node.tag or "python" in kind or (isinstance(node, yaml.MappingNode) and kind != "map"):
        raise BadInput(f"{place}: unexpected tag {node.tag}")
    if isinstance(node, yaml.ScalarNode):
        made = Text(node.value)
        made.place, made.node = place, node
        return made
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, source) for one in node.value]
    mapping: dict[Text, Any] = {}
    for key, value in ((_plain(key, source), _plain(value, source)) for key, value in node.value):
        if not isinstance(key, Text):
            raise BadInput(f"{place}: expected plain text as a key")
        if key in mapping:
            raise BadInput(f"{key.place}: {key!r} is given twice")
        mapping[key] = value
    return mapping
