"""What a request asks, checked and written as llguidance reads it.

The result is kept for the grammars asked for last. A matcher is made anew for each request, in
about half a millisecond: llguidance's own copies share a lexer whose states add up, so what one
request did would show in the limits of another.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from farthing.errors import InvalidParameterError
from farthing.sampling.grammar.gbnf import is_gbnf
from farthing.sampling.grammar.gbnf_to_lark import gbnf_to_lark
from farthing.sampling.grammar.json_schema import check_schema
from farthing.sampling.grammar.lark import check_lark
from farthing.sampling.grammar.limits import MAX_LITERAL_BYTES, MAX_SOURCE_BYTES
from farthing.sampling.grammar.regex import check_regex

if TYPE_CHECKING:
    import llguidance

Kind = Literal["json", "json_object", "regex", "choice", "grammar"]

CACHED_GRAMMARS = 256
"""Translations kept, 64 KiB at most each."""

WHITESPACE = r" |\n {0,32}"
"""Between two JSON tokens: nothing, one space, or a line break and an indentation."""

_JSON_OPTIONS = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": WHITESPACE,
    "coerce_one_of": False,
    "lenient": False,
    # Without \u: names of further properties could spell a name that the schema has with it.
    "json_allowed_escapes": 'nrbtf\\"',
}
_NOT_AHEAD = '\n%llguidance {"no_forcing": true}\n'
"""Keeps llguidance from working out text that must follow: of `"b" /a+/ "a"` it never sees an end.

In grammars of other kinds a terminal that must go on for ever cannot be written.
"""

_FROM_GBNF = "// from GBNF\n"

_IN_LARK = re.compile(r":? (?:line [0-9]+:|[0-9]+\([0-9]+\):) ")

_EXCERPT = re.compile(r"[0-9]+ \||\^$")  # of the grammar, and a mark below

_MAX_MESSAGE = 240


def limits(kind: Kind) -> llguidance.LLParserLimits:
    """Bounds of one matcher: tens of MiB, and tens of milliseconds to compile or for a mask.

    A grammar of the user's own may be ambiguous, and time then grows with the square of a row.
    """
    import llguidance

    ambiguous = kind == "grammar"
    return llguidance.LLParserLimits(
        max_items_in_row=1_000 if ambiguous else 5_000,
        initial_lexer_fuel=500_000,
        step_lexer_fuel=200_000,
        step_max_items=10_000 if ambiguous else 20_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


@functools.lru_cache(maxsize=CACHED_GRAMMARS)
def translate(kind: Kind, source: str) -> str:
    """The grammar of llguidance for a checked ``source`` (JSON text for ``json`` and ``choice``).

    Raises :class:`InvalidParameterError`: too complex, not understood, or no text satisfies it.
    """
    grammar = _TRANSLATIONS[kind](source)
    if source.startswith(_FROM_GBNF):
        with _as_gbnf():
            _try_out(_NAMES[kind], kind, grammar)
    else:
        _try_out(_NAMES[kind], kind, grammar)
    return grammar


def source_of(kind: Kind, value: Any) -> str:
    """What the user gave as one text, its size and form checked; the key of :func:`translate`."""
    if kind == "json":
        # The checked form: two spellings of one schema, or two descriptions, are the same.
        return json.dumps(check_schema(value), ensure_ascii=False)
    if kind == "json_object":
        return "{}"
    if kind == "choice":
        return json.dumps(_check_choice(value), ensure_ascii=False)
    if not isinstance(value, str):
        raise InvalidParameterError(
            f"structured_outputs.{kind}: {type(value).__name__} must be a string"
        )
    if kind == "regex":
        check_regex(value, "regular expression")
        return value
    if not is_gbnf(value):
        check_lark(value)
        return value
    lark = _FROM_GBNF + gbnf_to_lark(value)
    with _as_gbnf():
        check_lark(lark)
    return lark


@contextmanager
def _as_gbnf() -> Iterator[None]:
    """Errors name the language that was given, and no place in Lark, which its user never saw."""
    try:
        yield
    except InvalidParameterError as error:
        text = _IN_LARK.sub(" ", str(error).replace("Lark grammar", "GBNF grammar", 1))
        raise InvalidParameterError(text) from None


def _check_choice(value: Any) -> list[str]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InvalidParameterError("structured_outputs.choice must be a list of strings")
    choices = list(value)
    if not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise InvalidParameterError(
            "structured_outputs.choice must be a list of one or more strings, none of them empty"
        )
    total = 0
    for choice in choices:
        try:
            nbytes = len(choice.encode())
        except UnicodeEncodeError:
            raise InvalidParameterError(
                "structured_outputs.choice has a lone surrogate, which is not Unicode text"
            ) from None
        total += nbytes + 1
        if nbytes > MAX_LITERAL_BYTES or total > MAX_SOURCE_BYTES:
            raise InvalidParameterError(
                f"structured_outputs.choice is too complex: at most {MAX_LITERAL_BYTES:,} bytes "
                f"each and {MAX_SOURCE_BYTES:,} together are taken"
            )
    return choices


def _json(source: str) -> str:
    return _grammar({"json_schema": {**json.loads(source), "x-guidance": _JSON_OPTIONS}})


def _json_object(_source: str) -> str:
    return _grammar({"json_schema": {"type": "object", "x-guidance": _JSON_OPTIONS}})


def _regex(source: str) -> str:
    import llguidance

    # \d, \w and \s are ASCII: what they are beyond it depends on who reads the output.
    return _grammar({"lark_grammar": f"start: /{llguidance.regex_to_lark(source, 'dws')}/"})


def _choice(source: str) -> str:
    options = "|".join("".join(map(_literal, choice)) for choice in json.loads(source))
    return _grammar({"lark_grammar": f"start: /{options}/"})


def _literal(character: str) -> str:
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{{{ord(character):x}}}"


def _lark(source: str) -> str:
    return _grammar({"lark_grammar": source + _NOT_AHEAD})


_TRANSLATIONS: dict[Kind, Callable[[str], str]] = {
    "json": _json,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _lark,
}
_NAMES: dict[Kind, str] = {
    "json": "JSON schema",
    "json_object": "JSON object",
    "regex": "regular expression",
    "choice": "choice",
    "grammar": "Lark grammar",
}


def _grammar(part: dict[str, Any]) -> str:
    return json.dumps({"grammars": [part]}, ensure_ascii=False)


def _try_out(name: str, kind: Kind, grammar: str) -> None:
    """Compiles for a vocabulary of the 256 bytes and asks which may come first."""
    import llguidance

    matcher = llguidance.LLMatcher(_bytes_vocabulary(), grammar, log_level=0, limits=limits(kind))
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        raise InvalidParameterError(f"structured_outputs: {name}: {one_line(matcher.get_error())}")


@functools.cache
def _bytes_vocabulary() -> llguidance.LLTokenizer:
    import llguidance

    return llguidance.LLTokenizer("byte", slices=[])


def one_line(message: str) -> str:
    """What llguidance says, without the places of its own source."""
    if message.startswith("panic"):
        return "it cannot be compiled"
    lines = [line.strip() for line in message.replace("<non-verbose/>", "").splitlines()]
    text = " ".join(line for line in lines if line and not _EXCERPT.match(line))
    text = text or " ".join(lines)
    if any(sign in message for sign in _TOO_COMPLEX):
        return "it is too complex"
    if "NoExtensionBias" in message:
        return "no text satisfies it, or none that the vocabulary can write"
    if "oneOf constraints are not supported" in message:
        return (
            "options of a oneOf must be of different types or objects that a required property "
            "with a const string tells apart; an anyOf need not"
        )
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


_TOO_COMPLEX = (
    "too big",
    "too large",
    "too many",
    "Too many",
    "too deeply nested",
    "fuel exhausted",
    "Current row has",
)
