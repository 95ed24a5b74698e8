"""A model hub on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Speaks as much of the hub's protocol as a download needs, and fails as it is told."""

    endpoint: str
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)  # files kept as LFS objects (SHA-256 known)
    license: str | None = "apache-2.0"
    served: dict[str, bytes] = field(default_factory=dict)  # instead of the announced bytes
    break_after: dict[str, list[int]] = field(default_factory=dict)  # by file, by request
    status: dict[str, list[int]] = field(default_factory=dict)  # by file or repository, by request
    resumes: bool = True
    delay: float = 0.0  # seconds before each 64 KiB
    hold_after: int | None = None  # bytes of an answer after which no more come, until released
    released: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # file, Range
    tokens: list[str | None] = field(default_factory=list)

    def add(self, repository: str, files: dict[str, bytes]) -> None:
        """Publish a repository; weights are large files."""
        self.repositories[repository] = files
        self.large |= {name for name in files if name.endswith((".gguf", ".safetensors"))}

    def ranges(self, filename: str) -> list[str | None]:
        """The Range headers of a file's requests, in order."""
        return [header for name, header in self.requests if name == filename]

    def describe(self, repository: str) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for name, data in self.repositories[repository].items():
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": blob}
            if name in self.large:
                digest = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        return {
            "id": repository,
            "modelId": repository,
            "sha": COMMIT,
            "siblings": siblings,
            "tags": [],
            "cardData": {"license": self.license} if self.license else {},
        }


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.tokens.append(self.headers.get("Authorization"))
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
                self.describe(match[1], match[2])
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self.file(match[1], match[3])
            else:
                self.refuse(404)

        def describe(self, repository: str, revision: str) -> None:
            if status := hub.status.get(repository):
                self.refuse(status.pop(0))
            elif repository not in hub.repositories:
                self.refuse(404, "RepoNotFound")
            elif revision not in ("main", COMMIT):
                self.refuse(404, "RevisionNotFound")
            else:
                self.answer(200, json.dumps(hub.describe(repository)).encode(), {})

        def file(self, repository: str, name: str) -> None:
            header = self.headers.get("Range")
            hub.requests.append((name, header))
            if status := hub.status.get(name):
                self.refuse(status.pop(0))
                return
            data = hub.served.get(name, hub.repositories[repository][name])
            start = 0
            if header and hub.resumes:
                start = int(header.removeprefix("bytes=").removesuffix("-"))
                extra = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
                self.answer(206, data[start:], extra, hub.break_after.get(name))
            else:
                self.answer(200, data, {}, hub.break_after.get(name))

        def answer(
            self, status: int, body: bytes, extra: dict[str, str], breaks: list[int] | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for key, value in extra.items():
                self.send_header(key, value)
            self.end_headers()
            stop = breaks.pop(0) if breaks else len(body)
            for at in range(0, min(stop, len(body)), 1 << 16):
                if hub.hold_after is not None and at >= hub.hold_after:
                    hub.released.wait()
                if hub.delay:
                    time.sleep(hub.delay)
                self.wfile.write(body[at : min(at + (1 << 16), stop)])
            if stop < len(body):
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        def refuse(self, status: int, code: str | None = None) -> None:
            self.answer(status, b"{}", {"X-Error-Code": code} if code else {})

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what the tests are about."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub at a free port of this machine."""
    server = _Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(hub)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
