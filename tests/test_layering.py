import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

import circuits
import retrieval_interp
from tests.annotations import MODULES


def test_circuits_never_imports_retrieval_interp():
    for path in Path(circuits.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "retrieval_interp" for name in names), f"{path}:{node.lineno}"


def test_every_room_of_the_packages_has_its_place_in_the_map():
    rooms = (Path(__file__).parents[1] / "docs" / "rooms.md").read_text(encoding="utf-8")
    engine, study = rooms.split("    retrieval_interp/  ")
    for package, said in ((circuits, engine), (retrieval_interp, study)):
        own = Path(package.__file__).parent
        found = {path.name for path in own.glob("[!_]*.py")} | {
            f"{path.parent.name}/" for path in own.glob("*/__init__.py")
        }
        assert found <= set(re.findall(r"[\w]+(?:\.py|/)", said))


@pytest.mark.parametrize("package", [circuits, retrieval_interp])
def test_every_public_name_is_there(package):
    for name in package.__all__:
        found = getattr(package, name)
        assert name == "PRESETS" or found.__name__ == name  # a table has no name of its own
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_every_annotation_can_be_read_while_the_tests_run_for_else_nobody_would_check_it():
    for name in (name for name in MODULES if not name.startswith("retrieval_interp.cli.")):
        own = [one for one in vars(import_module(name)).values() if getattr(one, "__module__", "") == name]
        for kind in filter(inspect.isclass, own):
            own += (getattr(one, "__func__", getattr(one, "fget", one)) for one in vars(kind).values())
        for function in filter(inspect.isfunction, own):
            if function.__module__ == name:
                get_type_hints(function)
