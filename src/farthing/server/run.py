"""A server from its start to its exit status."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

from farthing.server.assembly import Server
from farthing.server.engine_client import EngineEndedError
from farthing.server.http.uvicorn_server import CLOSE_SECONDS, HttpServer
from farthing.server.life_cycle import Phase
from farthing.server.listening import addresses
from farthing.server.model_fetch import Fetch, ModelFetch
from farthing.server.model_texts import open_model_texts
from farthing.server.observation.logs import start_logs
from farthing.server.settings import ServerSettings
from farthing.server.shutdown import Shutdown
from farthing.server.watchdog import watch

SWITCH_SECONDS = 0.001
"""For which a thread that encodes prompts may hold back the streams; Python's own is 5 ms."""

PROGRESS_SECONDS = 0.1

ANNOUNCE_SECONDS = 0.3
"""After which it says where it listens, if there is no model yet: a wrong name is told first."""

FETCH_STOP_SECONDS = 1.0
"""For a download to keep what has come."""

_log = logging.getLogger("farthing.server")


def run(
    settings: ServerSettings,
    sockets: Sequence[socket.socket],
    *,
    fetch: Fetch | None = None,
    progress: Callable[[int, int], None] | None = None,
    engine_command: Sequence[str] | None = None,
) -> int:
    """Serves on ``sockets`` until told to stop; returns the exit status.

    ``fetch`` finds the model where it has to be looked for: its path and names take the place of
    those in ``settings``. Meanwhile, and while the model is loaded, requests are answered with 503.
    ``progress(done, total)`` is told the bytes of weights that are loaded, several times a second.
    ``engine_command`` is another program to run as the engine. Raises :class:`FarthingError` for a
    model that cannot be loaded.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    logs = start_logs(settings.logs)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            server = Server(settings, lambda: logs.dropped, engine_command)
            return runner.run(_serve(server, sockets, fetch, progress))
    finally:
        gc.unfreeze()  # cycles that the interpreter, ending, does not see are never released
        logs.close()


async def _serve(
    server: Server,
    sockets: Sequence[socket.socket],
    fetch: Fetch | None,
    progress: Callable[[int, int], None] | None,
) -> int:
    settings = server.settings
    shutdown = Shutdown(
        server.life,
        server.engine,
        lambda: server.open_requests,
        settings.shutdown_timeout,
        saves=settings.engine.prefix_cache is not None,
    )
    shutdown.listen()
    http = HttpServer(server.app, server.protocol)
    listening = asyncio.create_task(http.serve_on(sockets))
    watching = asyncio.create_task(watch(server.engine, settings.watchdog_timeout))
    tasks = [watching, listening]
    try:
        if fetch is not None and not await _fetch(server, sockets, fetch, shutdown, listening):
            return shutdown.before_loading()
        await server.engine.start()
        loading = asyncio.create_task(_load(server, sockets))
        reason = asyncio.create_task(shutdown.reason())
        tasks += [loading, reason, asyncio.create_task(_tell_progress(server, progress))]
        await _first_of(loading, reason, listening)
        if loading.done() or server.engine.ended.done():
            await loading  # raises what is wrong with the model
        await _first_of(reason, listening)
        if listening.done():
            await listening  # raises what is wrong with the sockets
        return await shutdown.end()
    finally:
        await server.engine.stop(0)
        http.should_exit = True
        await asyncio.wait([listening], timeout=2 * CLOSE_SECONDS)
        server.protocol.all_connections.abort_all()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()


async def _fetch(
    server: Server,
    sockets: Sequence[socket.socket],
    fetch: Fetch,
    shutdown: Shutdown,
    listening: asyncio.Task[None],
) -> bool:
    """Whether the model is here; else a signal has come. Raises what ``fetch`` does."""
    signalled = asyncio.create_task(shutdown.signalled())
    fetching = ModelFetch(fetch, server.life.downloading)
    try:
        await _first_of(fetching.found, signalled, listening, timeout=ANNOUNCE_SECONDS)
        if not fetching.found.done() or fetching.found.exception() is None:
            _log.info(
                "listening at %s: %s is being loaded",
                ", ".join(addresses(sockets, tls=server.settings.tls is not None)),
                server.settings.names[0],
            )
        await _first_of(fetching.found, signalled, listening)
        if signalled.done():
            return False
        if listening.done():
            await listening  # raises what is wrong with the sockets
        server.found(fetching.found.result())
        return True
    finally:
        signalled.cancel()
        await fetching.stop(FETCH_STOP_SECONDS)


async def _first_of(*tasks: asyncio.Future[Any], timeout: float | None = None) -> None:
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def _tell_progress(server: Server, progress: Callable[[int, int], None] | None) -> None:
    if progress is None:
        return
    while server.life.phase is Phase.LOADING:
        progress(*server.engine.loading)
        await asyncio.sleep(PROGRESS_SECONDS)
    progress(1, 1)


async def _load(server: Server, sockets: Sequence[socket.socket]) -> None:
    """Raises :class:`FarthingError` for a model that cannot be served."""
    try:
        texts, info = await asyncio.gather(
            asyncio.to_thread(open_model_texts, server.settings.engine.model),
            server.engine.ready(),
        )
    except EngineEndedError:  # of which the end of the server is told
        return
    if server.life.phase is not Phase.LOADING:  # it was told to stop meanwhile
        return
    server.loaded(texts, info)
    await asyncio.to_thread(server.warm_up)
    gc.collect()
    gc.freeze()  # what is loaded stays: nobody need look through it again
    server.life.enter(Phase.READY)
    for address in addresses(sockets, tls=server.settings.tls is not None):
        _log.info(
            "%s at %s: %d answers at a time, context of %d tokens, KV cache for %d",
            *(server.settings.names[0], address, info.max_num_seqs, info.max_model_len),
            info.num_blocks * info.block_tokens,
        )
