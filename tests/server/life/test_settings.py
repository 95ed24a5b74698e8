"""Flags as users give them, tried on running servers: TLS, keys, files, environment, times."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import httpx2
import pytest
import trustme

from support.control_stream import control_stream
from support.crowds import Crowd, alone, asked, error_of
from support.raw_http import RawClient, get
from support.reachable import CHAT, COMPLETIONS
from support.server_process import ServerProcess, serving, with_fault

ASKED = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}
USER = [{"role": "user", "content": "xyzzy-my-diary"}]
FROM_FILE, FROM_OUTSIDE, WRONG = "sk-plugh-file", "sk-plugh-outside", "sk-plugh-wrong"
BAD_KEYS = [("\xe9", 401), ("k" * (1 << 20), 431), (FROM_FILE[:-1], 401), ("", 401)]


def test_https(life_model: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.private_key_pem.write_to_path(key)
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(cert, append=True)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    files = ("--ssl-certfile", str(cert), "--ssl-keyfile", str(key))
    with serving(life_model, *files, scheme="https", verify=trust) as server:
        assert server.url.startswith("https://")
        bodies = [asked(number, 20) for number in range(4)]
        assert alone(server, bodies) == alone(server, bodies)
        assert f"at {server.url}/v1:" in server.ready_line()["message"]
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"http://127.0.0.1:{server.address[1]}/health", trust_env=False)
        with socket.create_connection(server.address) as plain:  # never shakes hands
            assert server.status("/health") == 200
            plain.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_keys_are_asked_for_and_neither_they_nor_prompts_are_anywhere(
    life_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{FROM_FILE} name=alice max_concurrent_requests=2\n")
    file.chmod(0o600)
    given = {"FARTHING_API_KEY": FROM_OUTSIDE}
    options = ("--api-key-file", str(file), "--log-level", "debug", "--enable-log-requests")
    with serving(life_model, *options, environment=given, headers=bearer(FROM_FILE)) as server:
        statuses = {
            key: httpx2.get(f"{server.url}/v1/models", headers=bearer(key)).status_code
            for key in (FROM_FILE, FROM_OUTSIDE, WRONG)
        }
        assert statuses == {FROM_FILE: 200, FROM_OUTSIDE: 200, WRONG: 401}
        with control_stream(server):  # H9
            for wrong, status in BAD_KEYS:
                raw = get("/v1/models", f"Authorization: Bearer {wrong}")
                with RawClient(server.address[1]) as client:
                    with contextlib.suppress(ConnectionError):  # it may close before all is sent
                        client.send(raw)
                    assert client.response().status == status
                assert httpx2.get(f"{server.url}/health").status_code == 200
        assert httpx2.get(f"{server.url}/debug/invariants").status_code == 401
        assert server.answer(COMPLETIONS, ASKED)["usage"]["completion_tokens"] == 3
        ask_for_a_diary(server)
        shown = [
            server.client.get("/server_info").text,
            server.client.get("/metrics").text,
            server.client.get("/openapi.json").text,
            " ".join(server.process.cmdline()),
            " ".join(server.engine().cmdline()),
            server.log(),
        ]
        for text in shown:
            assert "plugh" not in text
            assert "xyzzy" not in text
        for key in (FROM_FILE, FROM_OUTSIDE):
            assert key not in str(server.engine().environ())
        lines = server.entries("farthing.requests")
        assert {line["key_name"] for line in lines} == {"alice"}


def test_a_file_of_flags_and_the_environment(life_model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "farthing.toml"
    config.write_text(
        f"model = '{life_model}'\nserved-model-name = ['mine', 'yours']\n"
        f"max-num-seqs = 3\nport = 1\nhealth-timeout = 7.5\n"
    )
    arguments = ("--config", str(config), "--threads", "1")
    outside = {"FARTHING_PORT": str(port)}
    with ServerProcess(life_model, arguments=arguments, environment=outside) as server:
        server.until_ready()
        assert server.listening() == [("127.0.0.1", port)]
        info = server.client.get("/server_info").json()
        assert info["model"]["names"][:2] == ["mine", "yours"]
        assert info["engine"]["max_num_seqs"] == 3
        assert info["settings"]["health_timeout"] == 7.5
        assert server.status("/debug/invariants") == 404
        assert server.stop() == 0


def test_a_request_that_takes_too_long(life_model: Path) -> None:
    slow = with_fault("slow", 10)
    with serving(life_model, "--request-timeout", "1.5", command=slow) as server:
        with Crowd(server, [asked(1, 1900), asked(2, 1900)]) as crowd:
            responses = crowd.responses()
        assert [response.status_code for response in responses] == [504, 200]
        for response in responses:
            error = error_of(response)
            assert error["code"] == "timeout"
            assert "within 1.5 s (--request-timeout)" in error["message"]
        server.wait_idle()


def test_a_request_may_be_given_all_the_time_there_is(life_model: Path) -> None:
    with serving(life_model, "--request-timeout", "inf") as server:
        server.answer(CHAT, {"messages": USER, "max_tokens": 2})
        assert server.client.get("/server_info").json()["settings"]["request_timeout"] is None


def ask_for_a_diary(server: ServerProcess) -> None:
    """Asks something private, right and wrong, and waits for both to be in the access log."""
    server.answer(CHAT, {"messages": USER, "max_tokens": 2})
    server.post(CHAT, {"messages": USER, "temperature": -1})
    logged = {200, 400}
    server.wait(
        lambda: (
            logged == {e["status"] for e in server.entries("farthing.access") if e["path"] == CHAT}
        )
    )


def test_prompts_are_logged_when_asked_for(life_model: Path) -> None:
    with serving(life_model, "--log-prompts") as server:
        ask_for_a_diary(server)
        assert "xyzzy" in server.log()
