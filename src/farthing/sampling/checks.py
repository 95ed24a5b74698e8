"""Ranges of parameters, with errors that name parameter, value and what would be right."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from farthing.errors import InvalidParameterError


class Checks:
    """Checks the attributes of one object. Every method raises :class:`InvalidParameterError`."""

    def __init__(self, params: object) -> None:
        self._params = params

    def number(self, name: str, least: float, most: float) -> None:
        """A finite number from ``least`` to ``most``."""
        value = getattr(self._params, name)
        right = f"a number from {least} to {most}"
        self.require(_is_number(value) and least <= value <= most, name, value, right)

    def share(self, name: str) -> None:
        """A number above 0, at most 1."""
        value = getattr(self._params, name)
        right = "a number above 0, at most 1"
        self.require(_is_number(value) and 0 < value <= 1, name, value, right)

    def whole(self, name: str, least: int, most: int | None, right: str | None = None) -> None:
        """A whole number from ``least`` to ``most`` (None: without end)."""
        value = getattr(self._params, name)
        good = _is_int(value) and least <= value and (most is None or value <= most)
        self.require(good, name, value, right or f"a whole number from {least} to {most}")

    def whole_or_none(
        self, name: str, least: int, most: int | None, right: str | None = None
    ) -> None:
        """As :meth:`whole`; None is right too."""
        if getattr(self._params, name) is not None:
            self.whole(name, least, most, right)

    def flag(self, name: str) -> None:
        """True or False."""
        value = getattr(self._params, name)
        self.require(isinstance(value, bool), name, value, "True or False")

    def texts(self, name: str, *, most: int, most_bytes: int) -> tuple[str, ...]:
        """One string, or up to ``most``, each of 1 to ``most_bytes`` bytes; none for None."""
        texts = self._items(name, "a string or a sequence of strings")
        if len(texts) > most:
            raise InvalidParameterError(f"{name}: {len(texts)} strings, at most {most} are taken")
        alone = isinstance(getattr(self._params, name), str)
        for i, text in enumerate(texts):
            self.require(
                isinstance(text, str) and 0 < _utf8_length(text) <= most_bytes,
                name if alone else f"{name}[{i}]",
                text if isinstance(text, str) else type(text).__name__,
                f"UTF-8 text of 1 to {most_bytes} bytes",
            )
        return texts

    def token_ids(self, name: str, *, least: int = 0) -> tuple[int, ...] | None:
        """A sequence of ``least`` ids at least, each from 0 below 2**31; None is right too."""
        if getattr(self._params, name) is None:
            return None
        ids = self._items(name, "a sequence of token ids")
        self.require(len(ids) >= least, name, list(ids), f"a sequence of {least} id or more")
        for i, token in enumerate(ids):
            good = _is_int(token) and 0 <= token < 2**31
            self.require(good, f"{name}[{i}]", token, "a token id")
        return ids

    def bias(self, name: str, most: float) -> dict[int, float] | None:
        """A mapping from token ids to numbers from -most to most; None is right too."""
        value = getattr(self._params, name)
        if value is None:
            return None
        self.require(isinstance(value, Mapping), name, value, "a mapping from token id to number")
        for token, number in value.items():
            self.require(_is_int(token) and 0 <= token < 2**31, f"{name}: key", token, "a token id")
            self.require(
                _is_number(number) and -most <= number <= most,
                f"{name}[{token}]",
                number,
                f"a number from {-most} to {most}",
            )
        return dict(value)

    def require(self, good: bool, name: str, value: object, right: str) -> None:
        """Raises unless ``good``."""
        if not good:
            raise InvalidParameterError(f"{name}={reprlib.repr(value)} must be {right}")

    def _items(self, name: str, right: str) -> tuple[Any, ...]:
        value = getattr(self._params, name)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        # A mapping or bytes can be gone through, but are no sequence of texts or of ids.
        good = isinstance(value, Iterable) and not isinstance(value, Mapping | bytes | bytearray)
        self.require(good, name, value, right)
        try:
            return tuple(value)
        except TypeError:  # an array without dimensions
            raise InvalidParameterError(f"{name}={reprlib.repr(value)} must be {right}") from None


def _utf8_length(text: str) -> int:
    """Bytes of ``text``; 0 if it has a lone surrogate, which no text has."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))
