"""A server whose model is still on its way: it says where it is and how far that has come."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing.catalog import resolve
from support.full_pipe import full_pipe
from support.local_hub import Hub, running_hub
from support.reachable import CHAT, COMPLETIONS
from support.server_process import ServerProcess

REPOSITORY = "tiny/model"
WEIGHTS = "model.safetensors"
BLOCK = 1 << 16  # of which the hub sends one at a time
SECONDS = 5.0
"""In which a server that need not wait for anybody has ended."""


@pytest.fixture
def hub(life_model: Path) -> Iterator[Hub]:
    """A hub that has the model."""
    with running_hub() as hub:
        hub.add(REPOSITORY, {file.name: file.read_bytes() for file in life_model.iterdir()})
        yield hub


def surroundings(hub: Hub, home: Path) -> dict[str, str]:
    """Variables with which a model is looked for there, and kept in ``home``."""
    return {
        **{"HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home / "hf")},
        **{"FARTHING_HOME": str(home / "farthing"), "NO_PROXY": "*"},
    }


def fetching(hub: Hub, home: Path, model: str = REPOSITORY, **more: Any) -> ServerProcess:
    """A server that looks for its model there."""
    return ServerProcess(model, environment=surroundings(hub, home), **more)


def until_begun(server: ServerProcess) -> None:
    """Waits until a part of the model has come."""
    server.until_listening()

    def begun() -> bool:
        message = server.client.get("/health").json()["error"]["message"]
        return message.startswith("the model is being downloaded (") and "(0%" not in message

    server.wait(begun)


def two_lines(server: ServerProcess) -> list[dict[str, Any]] | None:
    """The first two of its log, once they are there."""
    entries = server.entries("farthing.server")
    return entries[:2] if len(entries) > 1 else None


def test_it_answers_while_the_model_comes(hub: Hub, tmp_path: Path) -> None:
    hub.hold_after = 5 * BLOCK
    with fetching(hub, tmp_path) as server:
        until_begun(server)
        told = [entry["message"] for entry in server.wait(lambda: two_lines(server))]
        assert f"listening at {server.url}/v1: {REPOSITORY} is being loaded" in told
        size = sum(len(file) for file in hub.repositories[REPOSITORY].values()) / 1024
        home = tmp_path / "farthing"
        assert f"Downloading {REPOSITORY} ({size:.1f} KiB) to {home}" in told
        assert server.status("/livez") == 200
        assert server.status("/metrics") == 200
        asked = {"prompt": "a"}
        responses = [server.client.get(f"/{path}") for path in ("health", "readyz", "v1/models")]
        responses += [server.post(COMPLETIONS, {**asked, "stream": on}) for on in (True, False)]
        responses += [server.post(CHAT, {}), server.post("/tokenize", {})]
        for response in responses:
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("service_unavailable", "loading")
            assert "% of 0.00 GB)" in error["message"]
        hub.released.set()
        server.until_ready()
        listed = server.client.get("/v1/models").json()["data"]
        assert [model["id"] for model in listed] == [REPOSITORY]
        assert server.answer(COMPLETIONS, {**asked, "max_tokens": 1})["model"] == REPOSITORY
        assert server.metric("farthing_healthy") == 1
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("comes slowly", signal.SIGTERM),
        ("does not come", signal.SIGINT),
        pytest.param("does not come", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_it_and_what_has_come_is_kept(
    how: str, number: int, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "comes slowly":
        hub.delay = 0.2
    else:
        hub.hold_after = 3 * BLOCK
    with fetching(hub, tmp_path) as server:
        until_begun(server)
        asked_at = time.monotonic()
        server.signal(number)
        assert server.end() == 128 + number
        assert time.monotonic() - asked_at < SECONDS
        assert "Traceback" not in server.log()
        name = signal.Signals(number).name
        assert f"{name}: stopped before there was a model" in server.log()
    hub.released.set()
    hub.delay, hub.hold_after = 0.0, None
    for name, value in surroundings(hub, tmp_path).items():
        monkeypatch.setenv(name, value)
    assert (resolve(REPOSITORY) / WEIGHTS).read_bytes() == hub.repositories[REPOSITORY][WEIGHTS]
    first, again = hub.ranges(WEIGHTS)
    assert first is None
    if how == "comes slowly":
        assert again is not None
        assert int(again.removeprefix("bytes=").removesuffix("-")) >= BLOCK
    models = tmp_path / "farthing" / "models"
    left = {path.name for path in models.rglob("*") if path.is_file()}
    assert left == {*hub.repositories[REPOSITORY], "manifest.json"}


def test_a_download_that_fails_is_told_in_a_line(hub: Hub, tmp_path: Path) -> None:
    hub.served[WEIGHTS] = bytes(len(hub.repositories[REPOSITORY][WEIGHTS]))
    hub.delay = 0.1
    with fetching(hub, tmp_path) as server:
        until_begun(server)
        hub.delay = 0.0
        assert server.end() == 2
        *_, last = server.log().splitlines()
        assert last.startswith(f"farthing: error: {REPOSITORY} could not be fetched: ")
        assert f"{WEIGHTS}: checksum is" in last
        assert server.log().count("farthing: error") == 1
        assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    "how", ["a signal", "all of it comes", pytest.param("a failure", marks=pytest.mark.slow)]
)
def test_nobody_reads_how_far_it_has_come(how: str, hub: Hub, tmp_path: Path) -> None:
    """Its stderr is a pipe that is full."""
    hub.hold_after = 5 * BLOCK
    if how == "a failure":
        hub.served[WEIGHTS] = bytes(len(hub.repositories[REPOSITORY][WEIGHTS]))
    with full_pipe() as full, fetching(hub, tmp_path, stderr=full) as server:
        until_begun(server)
        if how == "a signal":
            assert server.stop() == 128 + signal.SIGTERM
        hub.released.set()
        if how == "a failure":
            assert server.end() == 2
        if how == "all of it comes":
            server.until_ready()
            assert server.stop() == 0


def test_a_name_of_nothing_is_told_in_a_line_and_nothing_else(hub: Hub, tmp_path: Path) -> None:
    for name in ("qwen-of-nobody", str(tmp_path / "none.gguf"), "./none"):
        with fetching(hub, tmp_path, name) as server:
            assert server.end() == 2
            assert server.log().startswith("farthing: error: ")
            assert server.log().count("\n") == 1
