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
from farthing.server.model_texts import open_model_texts
from farthing.server.observation.logs import start_logs
from farthing.server.settings import ServerSettings
from farthing.server.shutdown import Shutdown
from farthing.server.watchdog import watch

SWITCH_SECONDS = 0.001
"""For which a thread that encodes prompts may hold back the streams; Python's own is 5 ms."""

PROGRESS_SECONDS = 0.1

_log = logging.getLogger("farthing.server")


def run(
    settings: ServerSettings,
    sockets: Sequence[socket.socket],
    *,
    progress: Callable[[int, int], None] | None = None,
    engine_command: Sequence[str] | None = None,
) -> int:
    """Serves on ``sockets`` until told to stop; returns the exit status.

    ``progress(done, total)`` is told the bytes of weights that are loaded, several times a second.
    ``engine_command`` is another program to run as the engine. Raises :class:`FarthingError` for a
    model that cannot be loaded.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    logs = start_logs(settings.logs)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            server = Server(settings, lambda: logs.dropped, engine_command)
            return runner.run(_serve(server, sockets, progress))
    finally:
        logs.close()


async def _serve(
    server: Server,
    sockets: Sequence[socket.socket],
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
    await server.engine.start()
    listening = asyncio.create_task(http.serve_on(sockets))
    loading = asyncio.create_task(_load(server, sockets))
    watching = asyncio.create_task(watch(server.engine, settings.watchdog_timeout))
    reason = asyncio.create_task(shutdown.reason())
    telling = asyncio.create_task(_tell_progress(server, progress))
    tasks = (watching, telling, reason, loading, listening)
    try:
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


async def _first_of(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


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
