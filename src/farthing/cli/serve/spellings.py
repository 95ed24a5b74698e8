"""The spellings of each flag of ``farthing serve``, in all three places it may be given in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from farthing.errors import InvalidParameterError
from farthing.program.kv_types import KV_DTYPES, KvDtype

PREFIX = "FARTHING_"

MODEL_SPELLINGS = ("--model", "-m", "-hf")
"""Of the one argument, which is an option too."""

KvSpelling = Literal[KvDtype, "auto", "f32", "f16", "q8_0", "q4_0"]
"""What ``--kv-cache-dtype`` may be: our types, and names that they have elsewhere."""

KV_TYPES: Mapping[str, KvDtype] = {
    **{dtype: dtype for dtype in KV_DTYPES},
    **{"auto": "fp16", "f32": "fp32", "f16": "fp16", "q8_0": "int8", "q4_0": "int4"},
}
"""Which of our types a spelling is."""


@dataclass(frozen=True, slots=True)
class Spellings:
    """Flags by each of their names: those of the command line without dashes, ``-`` as ``_``.

    ``flags`` has the flag of each name, ``names`` the names of each flag, its own first.
    """

    flags: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, parameters: Mapping[str, inspect.Parameter]) -> Spellings:
        """The spellings that ``parameters``, annotated as typer reads them, declare."""
        names = {
            flag: tuple(dict.fromkeys((flag, *map(_bare, _declared(flag, parameter)))))
            for flag, parameter in parameters.items()
        }
        return cls({name: flag for flag, several in names.items() for name in several}, names)

    def given_in(self, environ: Mapping[str, str], flag: str) -> list[tuple[str, str]]:
        """The variables that set ``flag``, with their values; an empty one sets nothing."""
        return [(name, environ[name]) for name in variables(self.names[flag]) if environ.get(name)]


def variables(names: Iterable[str]) -> list[str]:
    """The environment variables of a flag's names, with or without their dashes."""
    return [PREFIX + _bare(name).upper() for name in names]


def _require_same(given: Sequence[tuple[str, str]], told: Callable[[str, str], str]) -> None:
    """Of a flag's spellings in one place, with their values, all must say the same."""
    for spelling, value in given[1:]:
        if KV_TYPES.get(value, value) != KV_TYPES.get(given[0][1], given[0][1]):
            raise InvalidParameterError(
                f"{told(spelling, value)}: {told(*given[0])} is the same flag here, with another "
                "value; give one of them"
            )


def require_one_value_on_line(arguments: Sequence[str], parameters: Iterable[Any]) -> None:
    """Holds what a command line says of one option in several spellings against each other.

    Of one spelling given twice the last counts, so that a line can be added to. Raises
    :class:`InvalidParameterError`, also for a flag that stands where another's value is missing.
    """
    options = [each for each in parameters if each.param_type_name == "option"]
    every = {spelling for option in options for spelling in (*option.opts, *option.secondary_opts)}
    taking = {
        spelling: option for option in options if not option.is_flag for spelling in option.opts
    }
    given: dict[str, dict[str, str]] = {}
    rest = list(arguments)
    while rest and (word := rest.pop(0)) != "--":
        spelling, equals, value = word.partition("=")
        if spelling not in taking:
            spelling, value = word[:2], word[2:]
            if spelling not in taking or not value or word.startswith("--"):
                continue
        elif not equals:
            if not rest:
                return  # told by who parses it
            value = rest.pop(0)
            if value in every:
                raise InvalidParameterError(f"{spelling}: its value is missing before {value}")
        if not taking[spelling].multiple:
            given.setdefault(taking[spelling].name, {})[spelling] = value
    for values in given.values():
        _require_same(list(values.items()), lambda spelling, value: f"{spelling} {value}")


def require_one_value_in(environ: Mapping[str, str], spellings: Spellings) -> None:
    """The same of variables; an empty one is none. Raises :class:`InvalidParameterError`."""
    for flag in spellings.names:
        _require_same(spellings.given_in(environ, flag), lambda name, value: f"{name}={value!r}")


def _declared(flag: str, parameter: inspect.Parameter) -> tuple[str, ...]:
    declared = getattr(get_args(parameter.annotation)[1], "param_decls", None) or ()
    return (*declared, *(MODEL_SPELLINGS if flag == "model" else ()))


def _bare(declared: str) -> str:
    return declared.partition("/")[0].lstrip("-").replace("-", "_")
