"""``farthing`` with one fault: ``FAULT NUMBER ARGUMENT...``.

``block``: the server's event loop blocks when it gets SIGUSR1. All others are faults of the engine
process, at its pass of that number: see ``faulty_engine.py``.
"""

from __future__ import annotations

import functools
import signal
import sys
import time
from pathlib import Path

import farthing.server.run
from farthing.cli.main import main

FAULTY_ENGINE = Path(__file__).parent / "faulty_engine.py"


def block(number: int, frame: object) -> None:
    time.sleep(3600)


if __name__ == "__main__":
    _, fault, number, *arguments = sys.argv
    if fault == "block":
        signal.signal(signal.SIGUSR1, block)
    else:
        command = [sys.executable, str(FAULTY_ENGINE), fault, number]
        farthing.server.run.run = functools.partial(farthing.server.run.run, engine_command=command)
    sys.argv = ["farthing", *arguments]
    main()
