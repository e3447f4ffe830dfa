"""Read YAML without aliases and tags; a malformed file gives one clear line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from circuits.errors import BadInput
from circuits.utils.files import read_text

try:  # five times as fast
    from yaml import CBaseLoader as BaseLoader
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import BaseLoader, SafeLoader  # type: ignore[assignment]

LARGEST_FILE = 1_000_000
DEEPEST = 30  # levels of lists and mappings; parsers recurse for each
Parsed = TypeVar("Parsed")


class Loader(BaseLoader):
    """A loader that makes only texts, lists and mappings, whatever tags a file has."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping; a repeated key is an error, because the last one would win silently."""
        there: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in there:
                what = f"{key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(problem=what, problem_mark=key.start_mark)
            there.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file as lists, mappings and texts; ``no`` and ``1`` are texts, too.

    ``what`` names the file in errors ("a circuit in YAML").

    Raises:
        BadInput: the file cannot be read, or is malformed; the message names the line.
    """
    text = read_text(path, what, LARGEST_FILE)
    return parse(text, str(path), lambda text: yaml.load(text, Loader=Loader))


def parse(text: str, source: str, parsed: Callable[[str], Parsed]) -> Parsed:
    """Parse YAML without aliases with a parser of ``yaml``; ``source`` names the text in errors.

    Raises:
        BadInput: the text is not YAML, is nested too deeply, or has aliases (with these, a few lines can fill all
            memory).
    """
    try:
        depth = 0
        for event in yaml.parse(text, Loader=SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise BadInput(f"{source}: YAML aliases are not allowed")
            if depth > DEEPEST:
                raise BadInput(f"{source}: nested too deeply (more than {DEEPEST} levels)")
        return parsed(text)
    except BadInput:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise BadInput(f"{source}{where}: not YAML ({getattr(error, 'problem', None) or error})") from error
    except ValueError as error:  # a date that does not exist, a number that is too long
        raise BadInput(f"{source}: not YAML ({error})") from error
