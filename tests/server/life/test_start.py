"""A server begins: bound first, loaded then, ready at last; or it says in a line why not."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine
from support.reachable import CHAT, COMPLETIONS
from support.server_process import ServerProcess, serving, with_fault

REFUSED_SECONDS = 5.0
"""Of the processor: how long that takes depends on what else the machine does."""


def test_it_says_that_it_loads_and_when_it_is_ready(life_model: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with ServerProcess(life_model, command=with_fault("loading", gate)) as server:
        server.until_listening()
        assert server.status("/livez") == 200
        assert server.status("/metrics") == 200
        body = {"messages": [{"role": "user", "content": "What?"}]}
        responses = [server.client.get(f"/{path}") for path in ("health", "readyz", "v1/models")]
        responses += [server.post(CHAT, {**body, "stream": stream}) for stream in (True, False)]
        responses += [server.post(COMPLETIONS, {"prompt": "a"}), server.post("/tokenize", {})]
        for response in responses:
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["code"] == "loading"
        listening = server.listening_line()["message"]
        assert listening == f"listening at {server.url}/v1: tiny is being loaded"
        taken = refused(str(life_model), "--port", str(server.address[1]))
        assert "another program listens" in taken, "two servers never share a port"
        gate.touch()
        server.until_ready()
        ready = server.ready_line()
        assert f"tiny at {server.url}/v1:" in ready["message"]
        assert "context of 2048 tokens" in ready["message"]
        assert server.answer(CHAT, body)["model"] == "tiny"
        assert server.status("/health") == 200
        assert server.stop() == 0


def refused(*arguments: str) -> str:
    """The only line of a command that never gets as far as to load."""
    outcome = CommandLine({})("serve", *arguments)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("farthing: error: ")
    assert outcome.stderr.count("\n") == 1
    assert not outcome.stdout
    return outcome.stderr


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def why_not(model: Path | str, *options: str, **more: Any) -> str:
    """The last line of a server that does not begin; if it has listened, that is the other."""
    before = processor_seconds()
    with ServerProcess(model, *options, **more) as server:
        assert server.end() == 2
        assert processor_seconds() - before < REFUSED_SECONDS
        *before_it, line = server.log().splitlines()
        assert line.startswith("farthing: error: ")
        assert len(before_it) <= 1
        assert len(before_it) == len(server.entries("farthing.server"))
        return line


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        line = why_not(tmp_path / "is-not-looked-at", "--port", port)
    assert f"--port {port}: another program listens on 127.0.0.1:{port}" in line


FIRST_FREE_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


@pytest.mark.skipif(
    not FIRST_FREE_PORT.exists() or int(FIRST_FREE_PORT.read_text()) <= 1,
    reason="every port is free to all on this machine",
)
def test_a_port_that_is_not_this_users_is_told(tmp_path: Path) -> None:
    def without_privileges() -> None:
        if os.geteuid() == 0:  # PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE
            assert ctypes.CDLL(None).prctl(24, 10, 0, 0, 0) == 0

    line = why_not(tmp_path / "none", "--port", "1", preexec=without_privileges)
    assert "--port 1: this user may not listen there; ports from 1024 on are free to all" in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--host", "no-such-host.invalid"), "--host no-such-host.invalid: there is no such host"),
        (("--host", "203.0.113.7"), "--host 203.0.113.7: this is no address of this machine"),
        (("--ssl-certfile", "/none.pem"), "/none.pem"),
        (("--api-key-file", "/none.txt"), "/none.txt"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_loaded(
    options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    assert expected in refused(str(tmp_path / "is-not-looked-at"), "--port", "0", *options)


def test_a_model_that_is_none_is_told_in_a_line(life_model: Path, tmp_path: Path) -> None:
    missing, broken, torn = tmp_path / "none", tmp_path / "broken.gguf", tmp_path / "torn"
    broken.write_bytes(b"GGUF\3\0\0\0")
    torn.mkdir()
    for file in life_model.iterdir():
        content = file.read_bytes()
        (torn / file.name).write_bytes(content[:5000] if "safetensors" in file.name else content)
    assert str(missing) in refused(str(missing), "--port", "0")
    assert str(broken) in why_not(broken)
    assert "model.safetensors" in why_not(torn)


def test_an_engine_that_does_not_fit_into_memory_is_told_with_both_numbers(
    life_model: Path,
) -> None:
    line = why_not(life_model, "--kv-cache-tokens", str(1 << 40))
    assert "are available" in line


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_an_address_of_ipv6(life_model: Path) -> None:
    with serving(life_model, "--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.answer(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        for line in (server.listening_line(), server.ready_line()):
            assert f"at {server.url}/v1:" in line["message"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.address[1])).close()
