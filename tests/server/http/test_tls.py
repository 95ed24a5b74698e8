"""HTTPS: files that are looked at before anything listens, and connections over them."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from farthing.errors import FarthingError
from farthing.server.http.tls import ClientCertificates, TlsFiles
from support.http_server import QUICK, RunningServer, control_stream
from support.raw_http import RawClient, chunked, get, post, wait_until

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("localhost")


def written(file: Path, *blobs: trustme.Blob, mode: int = 0o600) -> Path:
    file.write_bytes(b"".join(blob.bytes() for blob in blobs))
    file.chmod(mode)
    return file


@pytest.fixture
def certfile(tmp_path: Path) -> Path:
    return written(tmp_path / "cert.pem", *ISSUED.cert_chain_pems)


@pytest.fixture
def keyfile(tmp_path: Path) -> Path:
    return written(tmp_path / "key.pem", ISSUED.private_key_pem)


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    both = written(
        tmp_path_factory.mktemp("tls") / "both.pem",
        ISSUED.private_key_pem,
        *ISSUED.cert_chain_pems,
    )
    with RunningServer(tls=TlsFiles(both).context()) as server:
        yield server


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    with control_stream(shared, client_context()):
        yield shared


def test_requests_are_answered_over_tls(server: RunningServer) -> None:
    with RawClient(server.port, client_context()) as client:
        assert client.send(get("/hello")).response().body == b'{"hello":"world"}'
        assert client.send(post("/echo", b"{}")).response().body == b"{}"
        body = b"x" * QUICK.max_body_bytes
        assert client.send(chunked("/echo", body)).response().body == body
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() in ("TLSv1.2", "TLSv1.3")
    with RawClient(server.port, client_context()) as client:
        assert len(client.send(get("/large")).response().body) == 30_000_000


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_request_may_come_with_the_end_of_the_handshake(
    loop: Literal["uvloop", "asyncio"], certfile: Path, keyfile: Path
) -> None:
    with RunningServer(tls=TlsFiles(certfile, keyfile).context(), loop=loop) as server:
        ask_with_the_handshake(server.port)
        with RawClient(server.port, client_context()) as client:
            assert client.send(get("/hello")).response().status == 200
        hello = bytes.fromhex("160301020001000001fc0303")
        for sent in (b"", hello, b"GET /hello HTTP/1.1\r\n\r\n"):
            with RawClient(server.port) as client:
                client.send(sent)  # and leaves
            wait_until(lambda: server.open == 0)
            with RawClient(server.port) as client:
                assert client.send(sent).is_cut()
            wait_until(lambda: server.open == 0)


def ask_with_the_handshake(port: int) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", port)) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65_536))
        tls.write(get("/hello", "Connection: close"))
        plain.sendall(outgoing.read())  # both in one
        received = b""
        while b"world" not in received:
            incoming.write(plain.recv(65_536))
            try:
                received += tls.read()
            except ssl.SSLWantReadError:
                continue
        assert received.startswith(b"HTTP/1.1 200")


def test_refusals_are_read_over_tls(server: RunningServer) -> None:
    requests = {
        post("/echo", b"", length=10**9): 413,
        post("/echo", b"x" * 1_000_000): 413,
        get("/hello", "X: " + "x" * 100_000): 431,
        b"no HTTP\r\n\r\n": 400,
        post("/echo", b"{", length=2): 408,
        b"GET /hel": 408,
    }
    for request, status in requests.items():
        with RawClient(server.port, client_context()) as client:
            response = client.send(request).response()
            assert response.status == status
            assert response.error["type"] == "invalid_request_error"


def test_without_tls_nothing_is_said(server: RunningServer) -> None:
    with RawClient(server.port) as client:
        assert client.send(get("/hello")).is_cut()
    with RawClient(server.port) as client:
        assert client.send(b"\0" * 1000).is_cut()
    wait_until(lambda: server.open == 1)  # the stream beside


def test_old_versions_are_refused(server: RunningServer) -> None:
    old = client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawClient(server.port, old)


def test_whoever_does_not_shake_hands_is_closed_in_time(server: RunningServer) -> None:
    hello = bytes.fromhex("160301020001000001fc0303")  # how a handshake begins, and no more of it
    began = time.monotonic()
    with RawClient(server.port) as silent, RawClient(server.port) as begun:
        begun.send(hello)
        wait_until(lambda: server.open == 3)
        with RawClient(server.port, client_context()) as client:
            assert client.send(get("/hello")).response().status == 200
        assert silent.is_cut()
        assert begun.is_cut()
        assert time.monotonic() - began >= QUICK.header_timeout
    wait_until(lambda: server.open == 1)


def test_a_client_that_leaves_is_noticed_over_tls(server: RunningServer) -> None:
    before = server.seen.disconnects
    with RawClient(server.port, client_context()) as client:
        client.send(get("/stream?name=leaves"))
        assert client.head()[0] == 200
    wait_until(lambda: server.seen.disconnects == before + 1)


def test_a_reader_that_stalls_is_cut_off_over_tls(server: RunningServer) -> None:
    before = server.seen.disconnects
    with RawClient(server.port, client_context()) as client:
        client.send(get("/flood"))
        wait_until(lambda: server.seen.disconnects == before + 1)
        wait_until(lambda: server.open == 1)


def test_connections_count_before_they_have_shaken_hands(certfile: Path, keyfile: Path) -> None:
    tls = TlsFiles(certfile, keyfile).context()
    with RunningServer(replace(QUICK, max_connections=5), tls=tls) as server, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        wait_until(lambda: server.open == 5)
        with RawClient(server.port, client_context()) as client:
            response = client.send(get("/hello")).response()
            assert (response.status, response.error["code"]) == (503, "too_many_connections")
        for _ in range(server.protocol.all_connections.spare):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        wait_until(lambda: server.open == 5 + server.protocol.all_connections.spare)
        with RawClient(server.port) as client:
            assert client.is_cut()
        wait_until(lambda: server.open == 0)  # they were too slow
        with RawClient(server.port, client_context()) as client:
            assert client.send(get("/hello")).response().status == 200


def test_clients_may_have_to_show_a_certificate(
    tmp_path: Path, certfile: Path, keyfile: Path
) -> None:
    ca_certs = written(tmp_path / "ca.pem", AUTHORITY.cert_pem)
    files = TlsFiles(certfile, keyfile, None, ca_certs, ClientCertificates.REQUIRED)
    with RunningServer(tls=files.context()) as server:
        known = client_context()
        AUTHORITY.issue_cert("client@example.org").configure_cert(known)
        with RawClient(server.port, known) as client:
            assert client.send(get("/hello")).response().status == 200
        stranger = client_context()
        trustme.CA().issue_cert("client@example.org").configure_cert(stranger)
        for context in (stranger, client_context()):
            with (
                pytest.raises((ssl.SSLError, ConnectionError, AssertionError)),
                RawClient(server.port, context) as client,
            ):
                client.send(get("/hello")).response()
        assert server.seen.served == 1


def refusal(files: TlsFiles) -> str:
    with pytest.raises(FarthingError) as refused:
        files.context()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_wrong_with_the_files_is_said_before_anything_listens(
    tmp_path: Path, certfile: Path, keyfile: Path
) -> None:
    missing = tmp_path / "missing.pem"
    text = tmp_path / "text.pem"
    text.write_text("not a certificate")
    other = written(tmp_path / "other.pem", AUTHORITY.issue_cert("localhost").private_key_pem)
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert refusal(TlsFiles(missing, keyfile)) == (
        f"cannot read the certificate in {missing}: No such file or directory"
    )
    assert refusal(TlsFiles(certfile, missing)) == (
        f"cannot read the private key in {missing}: No such file or directory"
    )
    assert refusal(TlsFiles(tmp_path, keyfile)) == (
        f"cannot read the certificate in {tmp_path}: Is a directory"
    )
    assert refusal(TlsFiles(text, keyfile)) == (
        f"there is no certificate in {text}: it must be a PEM file with one"
    )
    assert refusal(TlsFiles(keyfile, certfile)).startswith(f"there is no certificate in {keyfile}")
    assert refusal(TlsFiles(certfile)) == (
        f"there is no private key in {certfile}: it must be a PEM file with one"
    )
    assert refusal(TlsFiles(certfile, other)) == (
        f"the key in {other} is not the one of the certificate in {certfile}"
    )
    assert refusal(TlsFiles(broken, keyfile)).startswith(f"OpenSSL cannot use {broken}: ")
    assert refusal(TlsFiles(certfile, keyfile, None, missing)).startswith("cannot read the cert")
    required = ClientCertificates.REQUIRED
    assert "need a file" in refusal(TlsFiles(certfile, keyfile, client_certificates=required))
    assert refusal(TlsFiles(certfile, keyfile, ciphers="NONE-SUCH")) == (
        "OpenSSL knows no cipher in 'NONE-SUCH'"
    )


def test_an_encrypted_key_needs_its_password(tmp_path: Path, certfile: Path) -> None:
    key = serialization.load_pem_private_key(ISSUED.private_key_pem.bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    locked.chmod(0o600)
    assert refusal(TlsFiles(certfile, locked)) == (
        f"the key in {locked} is encrypted; give its password"
    )
    wrong = refusal(TlsFiles(certfile, locked, "wrong"))
    assert wrong == f"the key in {locked} cannot be decrypted with this password"
    assert TlsFiles(certfile, locked, "secret").context().verify_mode is ssl.CERT_NONE


def test_a_key_that_others_can_read_is_told(
    tmp_path: Path, certfile: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TlsFiles(certfile, written(tmp_path / "key.pem", ISSUED.private_key_pem)).context()
    assert not caplog.records
    keyfile = written(tmp_path / "open.pem", ISSUED.private_key_pem, mode=0o644)
    TlsFiles(certfile, keyfile).context()
    assert [record.getMessage() for record in caplog.records] == [
        f"{keyfile}: others on this machine can read the key; chmod 600 it"
    ]
