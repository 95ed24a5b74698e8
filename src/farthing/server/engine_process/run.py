"""The life of the engine process: settings, loading, the loop, the end."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import socket

from farthing.errors import FarthingError
from farthing.program.weights import explain_bus_errors
from farthing.server.engine_process.load import load
from farthing.server.engine_process.loop import EngineProcessLoop
from farthing.server.engine_process.server_watch import EXIT_WITHOUT_SERVER, watch_server
from farthing.server.engine_settings import EngineSettings
from farthing.server.observation.logs import start_logs
from farthing.server.seam.framing import EngineSeam
from farthing.server.seam.messages import Failed, Ready, Stopped

_log = logging.getLogger(__name__)

EXIT_BUG = 1
EXIT_USER = 2  # something the user can put right
LAST_WORDS_SECONDS = 5.0

YOUNG_OBJECTS = 20_000
"""Made and not freed between two looks for garbage, which then take well under a millisecond."""


def run(number: int) -> int:
    """Serves the socket of that number to the end; the exit status.

    0 after the server said stop; 1 for a bug, whose trace is on stderr; 2 where the model cannot be
    loaded; 3 where the server has ended first.
    """
    end = socket.socket(fileno=number)
    watch_server(end)
    seam = EngineSeam(end)
    try:
        (settings, *early) = seam.receive(None)
        assert isinstance(settings, EngineSettings), "the first message is the settings"
    except EOFError:
        return EXIT_WITHOUT_SERVER
    logs = start_logs(settings.logs)  # which waits for nobody: stderr is the server's, too
    try:
        return _serve(seam, settings, early)
    except EOFError:
        return EXIT_WITHOUT_SERVER
    except Exception as error:
        _log.exception("the engine cannot go on")
        with contextlib.suppress(EOFError):
            _end(seam, Failed(f"{type(error).__name__}: {error}", internal=True), EXIT_BUG)
        return EXIT_BUG
    finally:
        logs.close()


def _serve(seam: EngineSeam, settings: EngineSettings, early: list[object]) -> int:
    explain_bus_errors(settings.model)
    with contextlib.suppress(RuntimeError, OSError):  # without stderr there is no place for traces
        faulthandler.enable()  # which calls the handlers that were there, too
    try:
        loaded = load(settings, seam.send)
    except (FarthingError, MemoryError, OSError) as error:
        return _end(seam, Failed(_line(error), internal=False), EXIT_USER)
    loaded.engine.grammars.prepare()  # half a second: not while others wait for their next token
    _set_aside_garbage()
    seam.send(Ready(loaded.info))
    EngineProcessLoop(seam, loaded.engine, loaded.tokenizer).run(early)
    if loaded.store is not None:
        loaded.store.save()
    return _end(seam, Stopped(), 0)


def _set_aside_garbage() -> None:
    """Lets later collections, which stop the loop, pass by all that was made so far and stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def _end(seam: EngineSeam, last: Failed | Stopped, status: int) -> int:
    seam.send(last)
    seam.flush(LAST_WORDS_SECONDS)
    return status


def _line(error: Exception) -> str:
    match error:
        case MemoryError():
            return "out of memory"
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return f"{place}{error.strerror or error}"
        case _:
            return str(error)
