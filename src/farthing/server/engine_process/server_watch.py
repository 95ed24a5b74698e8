"""The end of this process when the server has ended, whatever it is doing."""

from __future__ import annotations

import os
import select
import socket
import threading

EXIT_WITHOUT_SERVER = 3


def watch_server(end: socket.socket) -> None:
    """Ends this process at once when the other end of ``end`` is closed, as it is by any death.

    The loop would notice by itself, but after its step; one may take many seconds.
    """
    poll = select.poll()
    poll.register(end, 0)  # nothing but POLLHUP and POLLERR, which are always reported

    def watch() -> None:
        poll.poll()
        os._exit(EXIT_WITHOUT_SERVER)

    threading.Thread(target=watch, name="server watch", daemon=True).start()
