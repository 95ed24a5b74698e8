"""The two built-in texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files

_SOURCE = "Debian package r-cran-janeaustenr 1.0.0-1"
_LICENCE = "public domain; prepared by janeaustenr, MIT"


@dataclass(frozen=True, slots=True)
class Text:
    """A text and where it is from."""

    name: str
    source: str
    licence: str
    text: str = field(repr=False)


def evaluation_text() -> Text:
    """What models are judged on: *Emma*, 883,028 characters."""
    return Text("Jane Austen, Emma", _SOURCE, _LICENCE, _read("emma.txt"))


def calibration_text() -> Text:
    """What is measured while a model is packed: 16 chapters of *Persuasion*, 274,412 characters."""
    name = "Jane Austen, Persuasion, chapters 1 to 16"
    return Text(name, _SOURCE, _LICENCE, _read("persuasion.txt"))


def _read(name: str) -> str:
    return files("farthing.texts").joinpath(name).read_text("utf-8")
