"""A command that is interrupted (Ctrl-C) in the middle of its work."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from support.command_line import COMMAND

_SLOW = """
import importlib, sys, time
module, owner, name = sys.argv[1:4]
owner = getattr(importlib.import_module(module), owner)
step = getattr(owner, name)
def slow(*arguments):
    step(*arguments)
    print(".", flush=True)
    time.sleep(0.2)
setattr(owner, name, slow)
sys.argv[1:] = sys.argv[4:]
from farthing.cli.main import main
main()
"""


def interrupted(
    step: tuple[str, str, str], arguments: Sequence[str], environment: dict[str, str]
) -> str:
    """Runs ``farthing`` with ``arguments`` to the third ``step`` (module, class, method).

    Returns what it says on stderr; it ends as what Ctrl-C ends does.
    """
    child = subprocess.Popen(
        [*COMMAND[:3], "-c", _SLOW, *step, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdout is not None
    for _ in range(3):
        assert child.stdout.readline() == ".\n"
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, stderr
    assert "Traceback" not in stderr
    return stderr
