import ast
import inspect
import re
import sys
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_type_hints

import pytest

import circuits
import retrieval_interp
from tests.annotations import MODULES, ROOT

ORDER = {  # rooms, each of which imports those before it at most; the files that stand beside them, too
    circuits: (
        *("errors", "utils", "results", "settings", "roles", "task", "heads", "mechanisms", "circuit"),
        *("circuit_file", "model", "split", "given", "entrance", "attention", "averages"),
        *("ablation", "losses", "flow", "checks"),
        *("tracing", "discovery", "figures", "viewer"),
        *("report", "validation", "explorer", "ground_truth"),
    ),
    retrieval_interp: (
        *("rng", "locks", "logs", "records", "results", "prompts", "theory", "language_tasks", "tasks"),
        *("ground_truth", "models", "training"),
        *("reproduction", "publishing"),
        *("experiments", "sweep", "llm", "cli", "__main__"),
    ),
}
ON_FIRST_USE, OWN = {"Deferred", "find_spec"}, {"circuits", "retrieval_interp"}
EXTRAS = ("llm", "notebook")


@pytest.mark.parametrize("package", ORDER)
def test_no_room_imports_one_above_it(package):
    root = Path(package.__file__).parent
    wrong = []
    for path in root.rglob("*.py"):
        if path.parent == root and path.stem == "__init__":
            continue
        room = path.relative_to(root).parts[0].removesuffix(".py")
        for name in imported(path):
            if name.startswith(f"{package.__name__}."):
                other = name.split(".")[1]
                if other in ORDER[package] and ORDER[package].index(other) > ORDER[package].index(room):
                    wrong.append(f"{path.relative_to(root)} imports {name}")
    assert wrong == []


def imported(path):
    """The modules that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def libraries(path):
    """The libraries of others that a file imports, at once, in functions or on first use."""
    tree = ast.parse(path.read_text())
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 1)
    named = {ast.unparse(node.args[0]).strip("'") for node in calls if ast.unparse(node.func) in ON_FIRST_USE}
    return {name.split(".")[0] for name in {*imported(path), *named}} - sys.stdlib_module_names - OWN


def distribution(text):
    """The name of a distribution, in a requirement or by itself, in the one form that all spellings share."""
    return re.sub("[-_.]+", "-", re.match("[A-Za-z0-9._-]+", text)[0]).lower()


def test_what_is_imported_is_declared_and_what_is_needed_at_run_time_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed, optional = project["dependencies"], project["optional-dependencies"]
    of = packages_distributions()
    files = [path for package in ORDER for path in Path(package.__file__).parent.rglob("*.py")]
    used = {distribution(of[name][0]) for path in files for name in libraries(path)}
    assert {"torch", "transformers", "circuitsvis", "pyyaml"} <= used
    assert {distribution(text) for text in needed} <= used
    assert used <= {distribution(text) for text in [*needed, *(text for e in EXTRAS for text in optional[e])]}


@pytest.mark.parametrize("folder", [Path(circuits.__file__).parent, Path(__file__).parent / "circuits"])
def test_neither_the_engine_nor_its_tests_import_retrieval_interp(folder):
    for path in folder.rglob("*.py"):
        assert not any(name.split(".")[0] == "retrieval_interp" for name in imported(path)), path


def test_only_the_room_of_the_model_imports_transformer_lens():
    root = Path(circuits.__file__).parent
    for path in root.rglob("*.py"):
        if path.parent != root / "model":
            assert not any(name.split(".")[0] == "transformer_lens" for name in imported(path)), path


def test_the_engine_does_not_know_the_retrieval_problem():
    """Its code, not its comments and docstrings, in which the task is an example."""
    for path in Path(circuits.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                told = re.search(r"\.(first|second)\b|\bchains?\b|^query$", node.value)
                assert told is None, f"{path}:{node.lineno}: {node.value!r}"
            if isinstance(node, ast.Name):
                assert "chain" not in node.id, f"{path}:{node.lineno}"


@pytest.mark.parametrize("package", ORDER)
def test_every_room_of_the_packages_has_its_place_in_the_map_and_every_public_name_is_there(package):
    rooms = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    root = Path(package.__file__).parent
    there = {path.parent.name for path in root.glob("*/__init__.py")} | {path.stem for path in root.glob("[!_]*.py")}
    assert there == {*ORDER[package]} - {"__main__"}
    assert all(re.search(rf"\b{room}(/|\.py)", rooms) for room in there)
    for name in package.__all__:
        found = getattr(package, name)
        assert name == "PRESETS" or found.__name__ == name  # a table has no name of its own
    with pytest.raises(AttributeError, match="nonsense"):
        package.nonsense  # noqa: B018


def test_every_annotation_can_be_read_while_the_tests_run_for_else_nobody_would_check_it():
    for name in (name for name in MODULES if not name.startswith("retrieval_interp.cli.")):
        own = [one for one in vars(import_module(name)).values() if getattr(one, "__module__", "") == name]
        for kind in filter(inspect.isclass, own):
            own += (getattr(one, "__func__", getattr(one, "fget", one)) for one in vars(kind).values())
        for function in filter(inspect.isfunction, own):
            if function.__module__ == name:
                get_type_hints(function)
