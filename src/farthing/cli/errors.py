"""What a user sees when something goes wrong: one line on stderr and an exit status."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from farthing.cli.entry import take_interrupts
from farthing.errors import FarthingError

EXIT_INTERNAL = 1  # a bug of ours
EXIT_USER = 2  # something the user can put right
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

READER_SECONDS = 5.0
"""For who reads stderr, where it is a pipe that is full, to take something out of it."""


def report(message: str, *, kind: str = "error") -> None:
    """Writes ``message`` as one line to stderr, unless nobody reads that: then it is lost."""
    if _is_read(sys.stderr):
        try:
            print(f"farthing: {kind}: {' '.join(message.split())}", file=sys.stderr, flush=True)
        except OSError:  # of a full disk; the exit status still tells
            _drop(sys.stderr)


def _is_read(stream: TextIO) -> bool:
    """Whether a line can be written to ``stream`` without waiting for ever."""
    try:
        fd = stream.fileno()
    except OSError:  # it is no file
        return True
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(READER_SECONDS * 1000))


def prepare_streams() -> None:
    """Puts the null device in place of streams that the caller closed.

    Lets an output that cannot show a character show a question mark in its place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is the closed stream's own: no later file gets its output.
            null = os.open(os.devnull, os.O_RDWR)
            stream = open(null, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def flush_output() -> bool:
    """Writes what is still buffered, or drops it and is False if whoever read it has left.

    Raises ``OSError`` naming the output where it takes no more.
    """
    try:
        sys.stdout.flush()
        return True
    except BrokenPipeError:
        _drop(sys.stdout)
        return False
    except OSError as error:
        _drop(sys.stdout)
        raise OSError(error.errno, error.strerror, "standard output") from error


def _drop(stream: TextIO) -> None:
    """Loses what ``stream`` has: the interpreter flushes it at its end and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class ErrorReportingGroup(TyperGroup):
    """Turns the errors of every verb into one line on stderr; ``--debug`` adds the trace."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Lets ``--debug`` stand behind the verb too, and makes ``VERB --help`` quick."""
        if len(args) > 1 and args[-1] in ctx.help_option_names:
            verb = self._verb_named(ctx, args[:-1])
            if verb is not None:
                # Parsing even this would load what coerces values, longer than all else it does.
                with _output_errors_told():
                    typer.echo(verb.command.get_help(verb))
                ctx.exit()
        end = args.index("--") if "--" in args else len(args)
        options = [argument for argument in args[:end] if argument != "--debug"]
        if len(options) < end:
            args = ["--debug", *options, *args[end:]]
        with _output_errors_told():  # --help and --version write
            return list(super().parse_args(ctx, args))

    def _verb_named(self, ctx: Any, names: list[str]) -> typer.Context | None:
        """The context of the verb, or verb of a verb, that ``names`` are the whole name of."""
        for name in names:
            commands = getattr(ctx.command, "commands", {})
            if name not in commands:
                return None
            ctx = typer.Context(commands[name], parent=ctx, info_name=name)
        found: typer.Context = ctx
        return found

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb. Exit statuses: 2 for errors of use, 1 for bugs, 130 for Ctrl-C."""
        try:
            take_interrupts()
            with _quiet_broken_pipe():
                result = super().invoke(ctx)
                if not flush_output():
                    raise typer.Exit(EXIT_BROKEN_PIPE)
                return result
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("typer", "click"):
                raise  # usage errors and exits, which typer itself reports
            error = _named(error)
            if ctx.params.get("debug") and _is_read(sys.stderr):
                traceback.print_exception(error)
            status, kind, message = describe_error(error)
        report(message, kind=kind)
        raise typer.Exit(status)


@contextlib.contextmanager
def _quiet_broken_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        flush_output()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


@contextlib.contextmanager
def _output_errors_told() -> Iterator[None]:
    """For what does nothing but write to stdout."""
    try:
        with _quiet_broken_pipe():
            yield
    except OSError as error:
        _drop(sys.stdout)
        report(f"standard output: {error.strerror or error}")
        raise typer.Exit(EXIT_USER) from None


def _named(error: Exception) -> Exception:
    """That of the output, if it is what failed: its own error does not name it."""
    if isinstance(error, OSError) and not error.filename:
        try:
            flush_output()
        except OSError as of_output:
            return of_output
    return error


def describe_error(error: Exception) -> tuple[int, str, str]:
    """Exit status, kind and message of an error."""
    if isinstance(error, FarthingError):
        return EXIT_USER, "error", str(error)
    if isinstance(error, MemoryError):
        return EXIT_USER, "error", "out of memory"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return EXIT_USER, "error", f"{place}{error.strerror or error}"
    message = f"{type(error).__name__}: {error} (--debug shows the trace)"
    return EXIT_INTERNAL, "internal error", message
