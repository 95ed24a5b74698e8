"""``StructuredOutputsParams``: the grammar a request asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.translation import Kind, source_of, translate

_KINDS: tuple[Kind, ...] = ("json", "regex", "choice", "grammar", "json_object")


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    r"""The form of an answer, as in vLLM; exactly one is given.

    - ``json``: a JSON schema (draft 2020-12), a mapping or its text. What is not enforced is an
      error that names it.
    - ``json_object=True``: any JSON object.
    - ``regex``: an expression that the whole answer matches, in the syntax Python and Rust share,
      without look-around; ``\d``, ``\w`` and ``\s`` are ASCII.
    - ``choice``: strings, one of which is the answer.
    - ``grammar``: a Lark grammar that begins at ``start``.

    Between JSON tokens stands nothing, one space, or a line break with up to 32 spaces.

    Raises :class:`InvalidParameterError` for a grammar that is not understood, cannot be satisfied
    or is too complex.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    kind: Kind = field(init=False, repr=False)
    source: str = field(init=False, repr=False)  # what was given, as one text

    def __post_init__(self) -> None:
        if self.json_object not in (None, False, True):
            raise InvalidParameterError(
                f"structured_outputs.json_object={self.json_object!r} must be True or False"
            )
        given = [
            kind
            for kind in _KINDS
            if getattr(self, kind) is not None and (kind != "json_object" or self.json_object)
        ]
        if len(given) != 1:
            raise InvalidParameterError(
                f"structured_outputs: {' and '.join(given) or 'nothing'} given; exactly one of "
                f"{', '.join(_KINDS)} is needed"
            )
        (kind,) = given
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "source", source_of(kind, getattr(self, kind)))
        translate(kind, self.source)

    def translated(self) -> str:
        """The grammar as llguidance reads it."""
        return translate(self.kind, self.source)
