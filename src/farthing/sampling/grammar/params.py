"""``StructuredOutputsParams``: the grammar a request asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.translation import Kind, source_of, translate

NAME = "structured_outputs"

_NAMED = re.compile(rf"\A{NAME}(?:\.\w+)?")
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
    - ``grammar``: a Lark grammar that begins at ``start``, or a GBNF grammar (``::=``) that begins
      at ``root``.

    Between JSON tokens stands nothing, one space, or a line break with up to 32 spaces.

    ``called``: what errors call it, where whoever asked knows it by another name.

    Raises :class:`InvalidParameterError` for a grammar that is not understood, cannot be satisfied
    or is too complex.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    called: str = field(default=NAME, repr=False, compare=False, kw_only=True)
    kind: Kind = field(init=False, repr=False)
    source: str = field(init=False, repr=False)  # what was given, as one text

    def __post_init__(self) -> None:
        with self._blamed():
            self._check()

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Errors that begin with ``structured_outputs`` begin with what this one is called."""
        try:
            yield
        except InvalidParameterError as error:
            if self.called == NAME:
                raise
            told = _NAMED.sub(lambda _: self.called, str(error), count=1)
            raise InvalidParameterError(told) from None

    def _check(self) -> None:
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
