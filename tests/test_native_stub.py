"""The types written down for the native module are those it has."""

from __future__ import annotations

import ast
from pathlib import Path

from farthing import _native

STUB = Path(__file__).parents[1] / "src" / "farthing" / "_native.pyi"


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("__")}


def test_the_stub_names_what_the_native_module_has() -> None:
    tree = ast.parse(STUB.read_text())
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    assert functions | set(classes) == public(dir(_native))
    for name, node in classes.items():
        members = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
        assert public(members) == public(dir(getattr(_native, name))), name
