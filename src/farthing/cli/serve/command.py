"""``farthing serve``: the OpenAI API over a model."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from farthing.cli.serve.config_file import read_config, written_config
from farthing.cli.serve.flags import FLAGS, GROUPS
from farthing.cli.serve.signature import groups_from, parameters_of, with_parameters
from farthing.cli.serve.sources import require_true_keys
from farthing.cli.serve.spellings import MODEL_SPELLINGS
from farthing.errors import InvalidParameterError


def _use_config(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = read_config(path)
    return path


@dataclass(frozen=True, slots=True)
class _Command:
    """What says where the flags come from."""

    model_option: Annotated[
        str | None,
        typer.Option(
            *MODEL_SPELLINGS,
            metavar="MODEL",
            show_default=False,
            allow_from_autoenv=False,
            help="MODEL, again.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            is_eager=True,
            callback=_use_config,
            show_default=False,
            help="TOML file of flags, written as here without the dashes before: port = 8001. "
            "The command line goes before the environment (FARTHING_PORT), that before the file.",
        ),
    ] = None
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print all that is set, as a file for --config, and exit."
        ),
    ] = False


def _serve(
    model_option: str | None, config: Path | None, print_config: bool, **values: Any
) -> None:
    """Serve the OpenAI API at http://127.0.0.1:8000/v1.

    Every flag, in each of its spellings, is also an environment variable, FARTHING_ and its name in
    capitals, and a key of the file that --config names. SIGTERM and Ctrl-C finish what runs, a
    second one ends at once. Exit statuses: 0 stopped as asked, 1 the engine failed, 2 wrong use, 3
    requests were cut off at --shutdown-timeout, 130 and 143 a second signal, or one during a
    download.
    """
    if model_option is not None:
        if values["model"] not in (None, model_option):
            raise InvalidParameterError(
                f"--model {model_option}: MODEL is {values['model']} already; give one of them"
            )
        values["model"] = model_option
    require_true_keys(values["api_key"] or (), os.environ)
    if print_config:
        sys.stdout.write(written_config(values))
        return
    from farthing.cli.serve.start import start

    raise typer.Exit(start(*groups_from(GROUPS, values)))


serve = with_parameters(_serve, [*FLAGS.values(), *parameters_of(_Command).values()])
