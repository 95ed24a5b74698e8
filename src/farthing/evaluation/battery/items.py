"""A battery as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """A question and the answers that are right, the usual one first."""

    question: str
    answers: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Battery:
    """Questions, where they are from and who may use them."""

    name: str
    items: tuple[Item, ...]
    source: str
    licence: str
