"""The form of an answer, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farthing.cli.generation import require_utf8
from farthing.errors import InvalidParameterError

if TYPE_CHECKING:
    from farthing.sampling.grammar.params import StructuredOutputsParams


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer must look like; at most one is given. ``grammar`` names a file."""

    json_schema: str | None = None  # JSON text, or the name of a file
    json_object: bool = False
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None

    def params(self) -> StructuredOutputsParams | None:
        """The engine's form; None if nothing is asked.

        Raises InvalidParameterError: several are given, or one is not understood or too complex.
        """
        given = {
            "--json-schema": self.json_schema,
            "--json-object": self.json_object or None,
            "--regex": self.regex,
            "--choice": list(self.choice) or None,
            "--grammar": self.grammar,
        }
        asked = [option for option, value in given.items() if value is not None]
        if not asked:
            return None
        if len(asked) > 1:
            raise InvalidParameterError(f"{' and '.join(asked)}: only one of them can be given")
        from farthing.sampling.grammar.params import StructuredOutputsParams

        for value in (self.json_schema, self.regex, *self.choice):
            require_utf8(f"the value of {asked[0]}", value or "")
        return StructuredOutputsParams(
            json=None if self.json_schema is None else _schema(self.json_schema),
            json_object=self.json_object or None,
            regex=self.regex,
            choice=list(self.choice) or None,
            grammar=None if self.grammar is None else _read("--grammar", self.grammar),
            called=asked[0],
        )


def _schema(given: str) -> str:
    if given.lstrip()[:1] in ("{", "[", '"'):
        return given
    return _read("--json-schema", given)


def _read(option: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParameterError(
            f"{option} {name}: byte {error.start} is not UTF-8 text"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidParameterError(f"{option} {name}: cannot be read: {reason}") from None
