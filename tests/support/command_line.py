"""The command as a user runs it, and the same without the time a new process takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from typer.testing import CliRunner

COMMAND = (sys.executable, "-W", "error", "-m", "farthing.cli")
"""A process in which a warning is an error."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left: exit status and both streams."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs ``farthing`` with arguments; its streams are never a terminal."""

    environment: Mapping[str, str]

    def __call__(self, *arguments: str, stdin: str = "", **extra: str) -> Outcome:
        """Runs inside this process; ``extra`` are further environment variables."""
        from farthing.cli.main import app

        result = CliRunner().invoke(
            app,
            list(arguments),
            input=stdin,
            env={**self.environment, **extra},
            prog_name="farthing",
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def process(self, *arguments: str, stdin: str = "", **extra: str) -> Outcome:
        """Runs as a process of its own."""
        result = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.environment, **extra},
            timeout=120,
            check=False,
        )
        return Outcome(result.returncode, result.stdout, result.stderr)
