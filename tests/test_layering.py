import ast
from pathlib import Path

import circuits


def test_circuits_never_imports_retrieval_interp():
    for path in Path(circuits.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "retrieval_interp" for name in names), f"{path}:{node.lineno}"
