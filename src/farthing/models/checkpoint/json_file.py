"""JSON objects in model files, strictly: UTF-8, no duplicate keys, no NaN, bounded in size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from farthing.errors import ModelFormatError
from farthing.models.checkpoint.file_reader import FileReader

MAX_JSON = 16 << 20  # bytes; the largest index of a sharded model is about one tenth of that


def read_json_object(path: Path) -> dict[str, object]:
    """The object in the file ``path``; raises :class:`ModelFormatError` if it is anything else."""
    reader = FileReader(path)
    if reader.size > MAX_JSON:
        raise ModelFormatError(path, f"has {reader.size} bytes, more than {MAX_JSON}")
    return parse_json_object(path, reader.read(0, reader.size), None)


def parse_json_object(path: Path, raw: bytes, offset: int | None) -> dict[str, object]:
    """The object in ``raw``, which starts at byte ``offset`` of ``path``."""

    def fail(problem: str, at: int = 0) -> NoReturn:
        where = at if offset is None else offset + at
        raise ModelFormatError(path, problem, field="JSON", offset=where)

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    fail(f"a duplicate key {key[:80]!r}")
                seen.add(key)
        return value

    def constant(name: str) -> NoReturn:
        fail(f"{name} is not JSON")

    try:
        value = json.loads(str(raw, "utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except UnicodeDecodeError as error:
        fail(f"is not UTF-8 ({error.reason})", error.start)
    except json.JSONDecodeError as error:
        fail(f"is not JSON ({error.msg})", len(error.doc[: error.pos].encode()))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; deep nesting
        fail(f"is not usable JSON ({str(error).partition(';')[0]})")
    if not isinstance(value, dict):
        fail("is not a JSON object")
    return value
