"""A server process with few file descriptors: ``python -m support.small_http_server LIMIT``.

Prints its port, then a line for each question on stdin: open descriptors and connections.
"""

from __future__ import annotations

import os
import resource
import sys

from support.http_server import QUICK, RunningServer


def main() -> None:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit // 2, limit))  # the server raises it itself
    with RunningServer(QUICK) as server:
        print(server.port, server.protocol.all_connections.limit, flush=True)
        for _ in sys.stdin:
            with open("/dev/null"):  # noqa: PTH123 - that a file can still be opened
                print(len(os.listdir("/proc/self/fd")), server.open, flush=True)  # noqa: PTH208


if __name__ == "__main__":
    main()
