"""Ends what hangs, with the stacks of all threads on stderr."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal

from farthing.server.engine_client import LAST_WORDS_SECONDS, EngineClient

INTERVAL = 1.0  # seconds between two looks

_log = logging.getLogger("farthing.server")


async def watch(engine: EngineClient, seconds: float) -> None:
    """Aborts an engine that has work and ends no step for ``seconds``; 0: never.

    The server's own event loop is watched too: when it does not come by for as long, the process
    ends with status 1, or of SIGALRM if nobody reads its stacks. For the main thread.
    """
    if not seconds:
        return
    own = seconds + 2 * INTERVAL
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        while True:
            faulthandler.dump_traceback_later(own, exit=True)
            signal.setitimer(signal.ITIMER_REAL, own + LAST_WORDS_SECONDS)
            stalled = engine.stalled_for()
            if stalled > seconds:
                _log.error("the engine has not ended a step for %.0f s: it is aborted", stalled)
                engine.abort_with_trace(
                    f"the engine ended no step for {seconds:g} s (--watchdog-timeout) and was ended"
                )
                return
            await asyncio.sleep(INTERVAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
