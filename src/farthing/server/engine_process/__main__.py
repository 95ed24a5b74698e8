"""Entry of the engine process."""

from __future__ import annotations

import signal
import sys


def _leave_signals_to_the_server() -> None:
    """Whoever signals a whole group of processes means the server, which then decides."""
    left = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in left:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, left)  # the server held them until here


if __name__ == "__main__":
    _leave_signals_to_the_server()  # before anything that takes time
    from farthing.server.engine_process.run import run

    sys.exit(run(int(sys.argv[1])))
