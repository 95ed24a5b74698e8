"""``--config FILE``: flags from a TOML file, below command line and environment."""

from __future__ import annotations

import difflib
import inspect
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from farthing.errors import InvalidParameterError


def read_config(path: Path, flags: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Values by flag, which a file may spell with ``-`` or ``_``.

    Raises :class:`InvalidParameterError` for a file that cannot be
    read, is no TOML or has other keys.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidParameterError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameterError(f"--config {path}: not TOML: {error}") from None
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in flags:
            near = difflib.get_close_matches(name, flags, n=1)
            hint = f"; did you mean {near[0].replace('_', '-')}?" if near else ""
            raise InvalidParameterError(f"--config {path}: there is no flag {key!r}{hint}")
        if name in found:
            raise InvalidParameterError(f"--config {path}: {key!r} is there twice")
        if isinstance(value, dict):
            raise InvalidParameterError(f"--config {path}: {key!r} must be a value, not a table")
        several = _takes_several(flags[name])
        if isinstance(value, list) and not several:
            raise InvalidParameterError(f"--config {path}: {key!r} must be one value, not a list")
        found[name] = [value] if several and not isinstance(value, list) else value
    return found


def _takes_several(flag: inspect.Parameter) -> bool:
    kinds = get_args(get_args(flag.annotation)[0])  # of Annotated[list[str] | None, ...]
    return any(get_origin(kind) is list for kind in kinds)


SECRET = frozenset({"api_key"})
"""Flags whose values are shown nowhere."""


def written_config(values: Mapping[str, Any]) -> str:
    """``values`` as a config file; what is unset is left out, so are secrets."""
    lines = []
    for name, value in values.items():
        if value is None or value == []:
            continue
        key = name.replace("_", "-")
        if name in SECRET:
            lines.append(f"# {key} is set")
        else:  # numbers, texts and lists of texts are written in TOML as in JSON
            lines.append(f"{key} = {json.dumps(value)}")
    return "".join(line + "\n" for line in lines)
