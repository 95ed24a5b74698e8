"""``--config FILE``: flags from a TOML file, below command line and environment."""

from __future__ import annotations

import difflib
import inspect
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from farthing.cli.serve.flags import FLAGS, SECRET, SPELLINGS
from farthing.errors import InvalidParameterError


def read_config(path: Path) -> dict[str, Any]:
    """Values by flag, which a file may spell as the command line does, with ``-`` or ``_``.

    Raises :class:`InvalidParameterError` for a file that cannot be read or is no TOML, and for a
    key that is no flag's, that gives a flag again or that has a value of another type.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidParameterError(f"--config {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameterError(f"--config {path}: not TOML: {error}") from None
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for key, value in values.items():
        name = SPELLINGS.flags.get(key.replace("-", "_"))
        if name is None:
            raise InvalidParameterError(f"--config {path}: there is no flag {key!r}{_near(key)}")
        if name in found:
            again = "" if _dashed(key) == _dashed(given[name]) else f", as {given[name]!r}"
            raise InvalidParameterError(f"--config {path}: {key!r} is there twice{again}")
        if isinstance(value, dict):
            raise InvalidParameterError(f"--config {path}: {key!r} must be a value, not a table")
        kinds = kinds_of(FLAGS[name])
        several = list[str] in kinds
        if isinstance(value, list) and not several:
            raise InvalidParameterError(f"--config {path}: {key!r} must be one value, not a list")
        for each in value if isinstance(value, list) else [value]:
            if wrong := _wrong_type(each, kinds):
                shown = "" if name in SECRET else f" = {_shown(each)}"
                raise InvalidParameterError(f"--config {path}: {key}{shown}: {wrong}")
        found[name] = [value] if several and not isinstance(value, list) else value
        given[name] = key
    return found


def kinds_of(flag: inspect.Parameter) -> tuple[Any, ...]:
    """The types a flag may have, or the words that it may be."""
    annotated = get_args(flag.annotation)[0]
    return get_args(annotated) or (annotated,)


def _wrong_type(value: object, kinds: tuple[Any, ...]) -> str | None:
    """What ``value`` should be, if it is nothing of the sort: no type is made of another."""
    if bool in kinds:
        return None if isinstance(value, bool) else "should be true or false"
    if int in kinds:
        return None if type(value) is int else "should be a valid integer"
    if float in kinds:
        return None if type(value) in (int, float) else "should be a valid number"
    return None if isinstance(value, str) else "should be a valid string"


def _near(key: str) -> str:
    near = difflib.get_close_matches(key.replace("-", "_"), SPELLINGS.flags, n=1)
    return f"; did you mean {_dashed(near[0])}?" if near else ""


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def written_config(values: Mapping[str, Any]) -> str:
    """``values`` as a config file; what is unset is left out, so are secrets."""
    lines = []
    for name, value in values.items():
        if value is None or value == []:
            continue
        key = _dashed(name)
        lines.append(f"# {key} is set" if name in SECRET else f"{key} = {_shown(value)}")
    return "".join(line + "\n" for line in lines)


def _shown(value: object) -> str:
    """A value as TOML: as JSON, but for infinity, characters beyond 16 bits, and one control."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bool | int | str | list):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # a date, which no flag is
