"""How the server ends: after a signal, or with its engine."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

from farthing.server.engine_client import STOPPED, EngineClient, EngineEndedError
from farthing.server.life_cycle import RESTART_SECONDS, LifeCycle, Phase

EXIT_FAILED = 1  # the engine ended by itself
EXIT_CUT_OFF = 3  # requests were still running when the time to finish them was over

SAVE_SECONDS = 60.0
"""For the engine to save its prefix cache and go."""

STOP_SECONDS = 10.0
"""For an engine that has none to save."""

ANSWER_SECONDS = 5.0
"""For what has been cut off to be told so."""

POLL = 0.02  # seconds

_log = logging.getLogger("farthing.server")


class Shutdown:
    """Ends the engine when there is a reason to. The first signal drains, the second does not.

    SIGHUP only ever begins to drain: who closes a terminal sends it several times, and systemd can
    send it behind SIGTERM.

    ``drain_seconds``: how long requests that have been taken may go on after the first signal.
    ``saves``: whether the engine has a prefix cache to save then.
    """

    def __init__(
        self,
        life: LifeCycle,
        engine: EngineClient,
        open_requests: Callable[[], int],
        drain_seconds: float,
        *,
        saves: bool,
    ) -> None:
        self._life = life
        self._engine = engine
        self._open_requests = open_requests
        self._drain_seconds = drain_seconds
        self._patience = SAVE_SECONDS if saves else STOP_SECONDS
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        self._number = 0

    def listen(self) -> None:
        """Takes SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP for the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._receive, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._receive, signal.SIGHUP)

    def _receive(self, number: int) -> None:
        if number == signal.SIGHUP and self._first.is_set():
            return
        self._number = number
        (self._second if self._first.is_set() else self._first).set()

    async def signalled(self) -> None:
        """Returns when the first signal has come."""
        await self._first.wait()

    def before_loading(self) -> int:
        """The exit status after a signal that found no engine yet: that of who dies of it."""
        name = signal.Signals(self._number).name
        _log.info("%s: stopped before there was a model; what has come of it is kept", name)
        return 128 + self._number

    async def reason(self) -> None:
        """Returns when the server has a reason to end: a signal, or that its engine has ended."""
        first = asyncio.create_task(self._first.wait())
        either: list[asyncio.Future[Any]] = [first, self._engine.ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()

    async def end(self) -> int:
        """Returns the exit status when the engine is gone and those that waited know."""
        if self._engine.ended.done():
            return await self._failed()
        if self._life.phase is Phase.LOADING:
            self._life.enter(Phase.DRAINING)
            await self._engine.stop(0)
            return 0
        return await self._drained()

    async def _failed(self) -> int:
        """Tells why, and waits for those who are told that their answers end here."""
        self._life.enter(Phase.FAILED)
        error = self._engine.ended.result()
        _log.error("%s", error.message)
        await self._until_answered(ANSWER_SECONDS)
        return EXIT_FAILED

    async def _drained(self) -> int:
        self._life.enter(Phase.DRAINING)
        running = self._open_requests()
        _log.info(
            "%s: stopping; %d running or waiting %s up to %.0f s, a second signal ends %s now",
            signal.Signals(self._number).name,
            running,
            "request has" if running == 1 else "requests have",
            self._drain_seconds,
            "it" if running == 1 else "them",
        )
        drained = await self._until_answered(self._drain_seconds)
        if self._engine.ended.done():
            return await self._failed()
        if not drained and not self._second.is_set():
            _log.warning("%d requests were not finished: cut off", self._open_requests())
        status = await self._saved(self._why_cut_off())
        await self._until_answered(ANSWER_SECONDS)
        if self._second.is_set():
            return 128 + self._number
        if not drained:
            return EXIT_CUT_OFF
        if status:
            _log.error("the engine did not stop as it should: %s", self._engine.how_it_ended)
            return EXIT_FAILED
        return 0

    def _why_cut_off(self) -> EngineEndedError:
        """What those are told whose answers are not finished."""
        if self._second.is_set():
            how, code = f"at once ({signal.Signals(self._number).name}, twice)", STOPPED
        else:
            how = f"after the {self._drain_seconds:g} s of --shutdown-timeout"
            code = "drain_timeout"
        return EngineEndedError(
            f"the server was told to stop and ended this answer {how}",
            code=code,
            retry_after=RESTART_SECONDS,
        )

    async def _saved(self, why: EngineEndedError) -> int:
        """Stops the engine, which saves its prefix cache unless a second signal comes."""
        stopping = asyncio.create_task(self._engine.stop(self._patience, why))
        second = asyncio.create_task(self._second.wait())
        either: list[asyncio.Future[Any]] = [stopping, second]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        second.cancel()
        if not stopping.done():
            await self._engine.stop(0)
        return await stopping

    async def _until_answered(self, seconds: float) -> bool:
        """Whether all requests ended within ``seconds``, no second signal coming, no failure."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        already = self._second.is_set(), self._engine.ended.done()
        while self._open_requests():
            if (self._second.is_set(), self._engine.ended.done()) != already:
                return False
            if loop.time() >= until:
                return False
            await asyncio.sleep(POLL)
        return True
