"""Regular expressions mean the same in every Python the package may be installed under."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "farthing"
MODULES = [path for path in PACKAGE.rglob("*.py") if "import re\n" in path.read_text()]

ESCAPED_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]", re.DOTALL)
POSSESSIVE = re.compile(r"[*+?}]\+")


def possessive_in(source: str) -> Iterator[str]:
    """String constants of ``source`` with ``*+``, ``++``, ``?+`` or ``{m,n}+``."""
    tree = ast.parse(source)
    searched = {
        id(operand)  # of ``sign in "*+?"``: characters, no pattern
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for operand in node.comparators
    }
    for node in ast.walk(tree):
        if id(node) in searched:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if POSSESSIVE.search(ESCAPED_OR_CLASS.sub("x", text)):
                yield text


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_pattern_has_possessive_quantifiers(module: Path) -> None:
    """``re`` before Python 3.11.5 matches those of groups wrongly (gh-106052): (?>…) instead."""
    assert list(possessive_in(module.read_text())) == []


@pytest.mark.parametrize("pattern", [r"(?:ab?c)*+", r"a++", rb"[*+]?+", r"(?:a,){0,9}+", r"\+{2}+"])
def test_possessive_quantifiers_are_found(pattern: str | bytes) -> None:
    assert len(list(possessive_in(f"import re\nre.compile({pattern!r})\n"))) == 1


@pytest.mark.parametrize("pattern", [r"\*+", r"[*+?]+", rb"[^]*+]\++", r"(?>a+)+", r"\}+b"])
def test_what_only_looks_like_them_is_not(pattern: str | bytes) -> None:
    assert list(possessive_in(f"import re\nre.compile({pattern!r})\n")) == []
