"""Typed, bounded look-ups in the key-value part of a model file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from farthing.errors import ModelFormatError


class Fields:
    """Values by key, each checked for type and range when it is asked for.

    A value of ``None`` (JSON ``null``) is absent. Every failure is a :class:`ModelFormatError`
    naming the file, the key and, where it is known, the byte.
    """

    def __init__(
        self,
        file: Path,
        values: Mapping[str, object],
        offsets: Mapping[str, int] | None = None,
        *,
        titles: Mapping[str, str] | None = None,
    ) -> None:
        self.file = file
        self.values = values
        self.offsets = offsets or {}
        self.titles = titles or {}  # where a key stands in the file, if not at the top

    def with_defaults(self, section: str | None, defaults: Mapping[str, object]) -> Fields:
        """These fields over ``defaults``, and over them those of the object ``section``, if any."""
        inner = self.values.get(section) if section else None
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            self.fail(str(section), f"must be an object, not {_describe(inner)}")
        titles = {key: f"{section}.{key}" for key in inner}
        values = {**defaults, **self.values, **inner}
        return Fields(self.file, values, self.offsets, titles={**self.titles, **titles})

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raises the error for ``key``."""
        offset = self.offsets.get(key)
        if offset is None:  # a value inside another is found where that one starts
            offset = self.offsets.get(re.split(r"[.[]", self.titles.get(key, key))[0])
        raise ModelFormatError(self.file, problem, field=self.titles.get(key, key), offset=offset)

    def require(self, key: str) -> None:
        """Raises if ``key`` is absent."""
        if key not in self:
            self.fail(key, "is missing")

    def integer(self, key: str, low: int, high: int) -> int:
        """The integer ``key``, which must be there and in low..high."""
        self.require(key)
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"must be an integer, not {_describe(value)}")
        if not low <= value <= high:
            self.fail(key, f"is {_describe(value)}, outside {low} to {high}")
        return value

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """The integer ``key`` in low..high, or None if it is absent."""
        return self.integer(key, low, high) if key in self else None

    def real(self, key: str, low: float, high: float) -> float:
        """The finite number ``key``, which must be there and in low..high."""
        self.require(key)
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"must be a number, not {_describe(value)}")
        if not low <= value <= high:  # NaN is not; an integer too large for a float compares too
            self.fail(key, f"is {_describe(value)}, outside {low:g} to {high:g}")
        return float(value)

    def optional_real(self, key: str, low: float, high: float) -> float | None:
        """The finite number ``key`` in low..high, or None if it is absent."""
        return self.real(key, low, high) if key in self else None

    def text(self, key: str) -> str:
        """The string ``key``, which must be there."""
        self.require(key)
        value = self.values[key]
        if not isinstance(value, str):
            self.fail(key, f"must be a string, not {_describe(value)}")
        return value

    def optional_text(self, key: str) -> str | None:
        """The string ``key``, or None if it is absent."""
        return self.text(key) if key in self else None

    def optional_boolean(self, key: str) -> bool | None:
        """The boolean ``key``, or None if it is absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {_describe(value)}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """The boolean ``key``, or ``default`` if it is absent."""
        value = self.optional_boolean(key)
        return default if value is None else value


def _describe(value: object) -> str:
    if isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return (
            repr(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
        )
    if isinstance(value, str):
        return repr(value if len(value) <= 48 else value[:48] + "…")
    if isinstance(value, dict):
        return "an object"
    return "a list"
