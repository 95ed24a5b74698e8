"""Ctrl-C before a command has begun its work: it ends, and no trace is shown."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

PROGRAM = """
import os, signal, sys
from farthing.cli.entry import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

_, module, *arguments = sys.argv
sys.argv = ["farthing", *arguments]
sys.meta_path.insert(0, Interrupting())
main()
"""


def interrupted_at(
    module: str, *arguments: str, preexec: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command, which gets the signal when it imports ``module``."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, module, *arguments],
        preexec_fn=preexec,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "status"),
    [("typer", -signal.SIGINT), ("farthing.cli.serve.command", -signal.SIGINT), ("fastapi", 130)],
)
def test_nothing_is_shown(module: str, status: int) -> None:
    outcome = interrupted_at(module, "serve", "./none", "--port", "0")
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (status, "", "")


def test_who_has_it_ignored_is_not_interrupted() -> None:
    """As a shell does for what it starts in the background."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    outcome = interrupted_at("fastapi", "serve", "./none", "--port", "0", preexec=ignore)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("farthing: error: ")
