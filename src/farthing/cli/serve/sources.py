"""Where the value of a flag came from, for errors that must name it: a variable, a file's key."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from farthing.cli.errors import report
from farthing.cli.serve.flags import SECRET, SPELLINGS
from farthing.cli.serve.spellings import PREFIX, require_one_value_in, require_one_value_on_line
from farthing.errors import InvalidParameterError

OTHERS = ("ISA", "HOME", "MODEL_PATH")
"""Variables of all verbs."""

_OF_TESTS = ("BUILD", "CLIENT_ENVIRONMENTS", "TEST_MODELS")
_NAMED = re.compile(r"(?:--)?([a-z][a-z_-]*)")


class ServeCommand(TyperCommand):
    """Errors name the variable, or the file and its key, that a wrong value came from."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises :class:`InvalidParameterError` for a value from elsewhere than the line.

        Also for one flag that is given two values in one place.
        """
        if ctx.resilient_parsing:  # a line that a shell completes is not whole
            return list(super().parse_args(ctx, args))
        require_one_value_on_line(args, self.get_params(ctx))
        require_one_value_in(os.environ, SPELLINGS)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            name = None if error.param is None else error.param.name
            where = None if name is None else _source(ctx, name, with_value=True)
            if where is None:
                raise
            problem = error.message.removeprefix("Value error, ").removeprefix("Input ")
            raise InvalidParameterError(f"{where}: {problem.rstrip('.')}") from None
        if ctx.params["model_option"] and ctx.get_parameter_source("model").name != "COMMANDLINE":
            ctx.params["model"] = None  # the command line goes first
        names = (*SPELLINGS.flags, "config", "print_config")
        if unknown := unknown_variables(os.environ, names):
            report(unknown, kind="warning")
        return list(rest)

    def invoke(self, ctx: Any) -> Any:
        """Runs it; what it refuses later is told with its source too."""
        try:
            return super().invoke(ctx)
        except InvalidParameterError as error:
            found = _NAMED.match(str(error))
            where = found and _source(ctx, found[1].replace("-", "_"), with_value=False)
            if not found or not where:
                raise
            problem = str(error).removeprefix(f"--{found[1]}: ")
            raise InvalidParameterError(f"{where}: {problem}") from error


def require_true_keys(keys: Iterable[str], environ: Mapping[str, str]) -> None:
    """An empty variable is one that is not there, but of a key it would open the server.

    A key that begins with ``--`` is a flag that stands where a key is missing. Raises
    :class:`InvalidParameterError`.
    """
    name = f"{PREFIX}API_KEY"
    if name in environ and not environ[name].strip():
        raise InvalidParameterError(f"{name}: the key is empty; unset it to ask for none")
    if any(key.strip().startswith("--") for value in keys for key in value.split(",")):
        raise InvalidParameterError(
            "--api-key: a key cannot begin with --, as flags do; is the key missing?"
        )


def unknown_variables(environ: Mapping[str, str], flags: Iterable[str]) -> str | None:
    """A line on the variables that look like flags and are none; None without any."""
    known = [PREFIX + name for name in (*(flag.upper() for flag in flags), *OTHERS)]
    told = []
    for name in sorted(environ):
        plain = name.removeprefix(PREFIX)
        if plain == name or name in known or plain in _OF_TESTS:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        told.append(f"{name[:80]} (did you mean {near[0]}?)" if near else name[:80])
    return f"no flag and nothing else here reads {', '.join(told)}" if told else None


def _source(ctx: Any, flag: str, *, with_value: bool) -> str | None:
    """Where the value of ``flag`` stands, if that is not the command line."""
    source = ctx.get_parameter_source(flag)
    shown = with_value and flag not in SECRET
    if source is not None and source.name == "ENVIRONMENT":
        given = SPELLINGS.given_in(os.environ, flag) if flag in SPELLINGS.names else []
        variable, value = given[0] if given else (PREFIX + flag.upper(), "")
        return f"{variable}={value!r}" if shown else variable
    if source is not None and source.name == "DEFAULT_MAP":
        place = f"--config {ctx.params.get('config')}: {flag.replace('_', '-')}"
        return f"{place} = {ctx.default_map[flag]!r}" if shown else place
    return None
