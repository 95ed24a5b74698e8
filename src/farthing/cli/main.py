"""The ``farthing`` command: starts with typer alone; a verb imports what it uses when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from farthing.cli.batch import batch
from farthing.cli.bench.app import app as bench
from farthing.cli.chat import chat
from farthing.cli.doctor.command import doctor
from farthing.cli.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_USER,
    ErrorReportingGroup,
    flush_output,
    prepare_streams,
    report,
)
from farthing.cli.evaluate import evaluate
from farthing.cli.inspect.command import inspect
from farthing.cli.list import list_models
from farthing.cli.pull import pull
from farthing.cli.quantize import quantize
from farthing.cli.rm import rm
from farthing.cli.run import run
from farthing.cli.serve.command import serve
from farthing.cli.serve.sources import ServeCommand
from farthing.cli.show import show
from farthing.cli.version import print_version

# Plain help: loading rich takes longer than everything else that --help does.
app = typer.Typer(
    name="farthing",
    cls=ErrorReportingGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def farthing(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the trace of an error; may stand anywhere."),
    ] = False,
) -> None:
    """Serve open-weight language models on the CPUs you already own."""


app.command("serve", cls=ServeCommand, context_settings={"auto_envvar_prefix": "FARTHING"})(serve)
app.command("run")(run)
app.command("chat")(chat)
app.command("pull")(pull)
app.command("list")(list_models)
app.command("show")(show)
app.command("rm")(rm)
app.command("quantize")(quantize)
app.command("batch")(batch)
app.command("evaluate")(evaluate)
app.command("inspect")(inspect)
app.command("doctor")(doctor)
app.add_typer(bench, name="bench")


def main() -> None:
    """Runs the command that the arguments name."""
    prepare_streams()
    try:
        app(prog_name="farthing")
    finally:
        try:
            read = flush_output()
        except OSError as error:
            report(f"{error.filename}: {error.strerror}")
            sys.exit(EXIT_USER)
        if not read:
            sys.exit(EXIT_BROKEN_PIPE)
