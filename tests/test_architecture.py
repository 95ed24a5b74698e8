"""Which way imports go (docs/architecture.md), and how large a room may get."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "farthing"

# A part may import from itself and from the parts listed; nothing else of the package.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": set(),
    "machine": set(),
    "version": set(),
    "files": set(),
    "texts": set(),
    "program": set(),
    "quantization": set(),
    "sampling": set(),
    "tokenization": {"files"},
    "download": set(),
    "catalog": {"download"},
    "models": {"files", "program", "quantization", "tokenization"},
    "packing": {"files", "models", "program", "quantization", "texts"},
    "engine": {"files", "models", "program", "sampling", "tokenization"},
    "llm_arguments": {"sampling"},
    "llm": {
        "catalog",
        "engine",
        "llm_arguments",
        "models",
        "program",
        "sampling",
        "tokenization",
    },
    "openai_protocol": {"engine", "files", "sampling", "tokenization"},
    "batch": {"engine", "files", "llm", "llm_arguments", "openai_protocol", "sampling"},
    "server": {
        "engine",
        "llm_arguments",
        "models",
        "openai_protocol",
        "program",
        "sampling",
        "tokenization",
    },
    "bench": {"engine", "llm", "models", "program", "quantization", "sampling", "tokenization"},
    "evaluation": {
        "bench",
        "engine",
        "files",
        "models",
        "packing",
        "program",
        "quantization",
        "sampling",
        "texts",
        "tokenization",
    },
    "mixed": {
        "engine",
        "evaluation",
        "models",
        "packing",
        "program",
        "quantization",
        "tokenization",
    },
    "cli": {
        "batch",
        "bench",
        "catalog",
        "download",
        "engine",
        "evaluation",
        "llm",
        "mixed",
        "models",
        "openai_protocol",
        "packing",
        "program",
        "quantization",
        "sampling",
        "server",
        "texts",
        "tokenization",
    },
    "__init__": {"llm", "sampling", "engine"},
}
ANYWHERE = {"errors", "config", "machine", "version"}
NATIVE_IMPORTERS = {
    "program/native.py",
    "program/emission.py",
    "program/weights.py",
    "quantization/rounding.py",
    "quantization/error.py",
    "sampling/",
    "tokenization/sentencepiece_core.py",
    "machine.py",
    "bench/limits.py",
    "bench/random_weights.py",
    "cli/doctor/",
}
PURE = {
    f"engine/{name}.py"
    for name in (
        "request",
        "block_pool",
        "prefix_cache",
        "kv_manager",
        "paged_kv",
        "contiguous_kv",
        "fair_share",
        "waiting_queue",
        "batching",
        "schedule",
        "prefill",
        "scheduler",
        "deadlines",
        "metrics",
    )
}
NOT_PURE = {"numpy", "farthing.program", "farthing._native"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Absolute names of modules imported anywhere in a file, lazily too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            names.add(node.module)
            if node.module == "farthing":
                names |= {f"farthing.{alias.name}" for alias in node.names}
    return names


def part_of(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    part = relative.parts[0].removesuffix(".py")
    assert part in ALLOWED, f"{part} has no place in the table of import directions"
    allowed = ALLOWED[part] | ANYWHERE | {part, "_native"}
    used = {part_of(m) for m in imported(path) if m.startswith("farthing.")}
    assert used <= allowed, f"{relative} may not import {sorted(used - allowed)}"


def test_the_table_has_no_cycles_and_no_stale_rows() -> None:
    order: list[str] = []

    def visit(part: str, trail: tuple[str, ...]) -> None:
        assert part not in trail, f"cycle: {' -> '.join((*trail, part))}"
        for other in ALLOWED[part]:
            visit(other, (*trail, part))
        order.append(part)

    for part in ALLOWED:
        visit(part, ())
        assert (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file(), part


def test_only_those_parts_named_touch_native_code() -> None:
    importers = {
        str(path.relative_to(PACKAGE)) for path in modules() if "farthing._native" in imported(path)
    }
    stray = {i for i in importers if not i.startswith(tuple(NATIVE_IMPORTERS))}
    assert not stray


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_scheduler_and_its_pool_are_plain_python(name: str) -> None:
    used = imported(PACKAGE / name)
    assert not {m for m in used if m.startswith(tuple(NOT_PURE))}


def test_files_hold_one_thing() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for pattern, limit in (("src/**/*.py", 400), ("csrc/**/*.cc", 500), ("csrc/**/*.h", 500))
        for path in ROOT.glob(pattern)
        if (lines := len(path.read_text().splitlines())) > limit
    }
    assert not too_long
    models = list((PACKAGE / "models").glob("*.py"))
    assert models
    assert all(len(p.read_text().splitlines()) <= 300 for p in models)
