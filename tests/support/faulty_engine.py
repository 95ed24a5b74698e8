"""The engine process with one fault: ``FAULT STEP FD``, at the pass of that number, from 1.

``raise``, ``hang`` and ``crash`` happen to the pass; ``nan`` and ``garble`` to the first request of
it, whose logits are not finite or whose text cannot be made. With ``slow`` each pass takes so many
milliseconds more. With ``loading`` STEP is a path: nothing is loaded before something is there.
"""

from __future__ import annotations

import faulthandler
import itertools
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import farthing.server.engine_process.run
from farthing.engine.draws import Draw
from farthing.engine.output_processor import OutputProcessor
from farthing.engine.runner import Runner
from farthing.engine.schedule import Schedule
from farthing.sampling.sampler import NOT_FINITE

_, fault, where, fd = sys.argv
step = 0 if fault == "loading" else int(where)
load = farthing.server.engine_process.run.load
run, process = Runner.run, OutputProcessor.process
passes = itertools.count(1)
garbled: set[str] = set()


def faulty_run(self: Runner, schedule: Schedule) -> dict[str, Draw]:
    draws = run(self, schedule)
    if fault == "slow":
        time.sleep(step / 1000)
    if fault in ("slow", "loading"):
        return draws
    if next(passes) != step:
        return draws
    first = next(iter(draws), None)
    match fault:
        case "raise":
            raise RuntimeError("a fault of a test")
        case "hang":
            time.sleep(3600)
        case "crash":
            faulthandler._sigsegv()
        case "nan":
            assert first is not None
            draws[first].token = NOT_FINITE
        case "garble":
            assert first is not None
            garbled.add(first)
        case _:
            raise AssertionError(fault)
    return draws


def faulty_process(self: OutputProcessor, event: object) -> str | None:
    if self.request.request_id in garbled:
        raise ValueError("text of a test")
    return process(self, event)  # type: ignore[arg-type]


def late_load(*arguments: Any) -> Any:
    while not Path(where).exists():
        time.sleep(0.01)
    return load(*arguments)


if fault == "loading":
    farthing.server.engine_process.run.load = late_load
Runner.run = faulty_run  # type: ignore[method-assign]
OutputProcessor.process = faulty_process  # type: ignore[method-assign]
sys.argv = ["engine_process", fd]
runpy.run_module("farthing.server.engine_process", run_name="__main__", alter_sys=False)
