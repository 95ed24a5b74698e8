"""Messages as bytes: whole whatever the pieces, never waited for by the engine."""

from __future__ import annotations

import asyncio
import pickle
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from farthing.engine.outputs import Logprob, StreamChunk
from farthing.server.seam import framing
from farthing.server.seam.framing import EngineSeam, FrameError, FrameReader, ServerSeam, frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [1, 2, 5, 1000, 65_536, 1 << 22])
def test_messages_are_whole_whatever_the_pieces(size: int) -> None:
    rng = random.Random(0)
    lengths = (0, 1, 3, 200) if size < 1000 else (0, 1, 3, 200, 70_000)
    messages = [rng.randbytes(rng.choice(lengths)) for _ in range(60)]
    stream = b"".join(map(frame, messages))
    reader = FrameReader()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [message for piece in pieces for message in reader.feed(piece)] == messages


def test_a_message_that_is_too_large_is_refused_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", 100)
    assert frame(bytes(50))
    with pytest.raises(FrameError, match="at most 100"):
        frame(bytes(200))
    with pytest.raises(FrameError, match="2000000000 bytes is announced"):
        FrameReader().feed(struct.pack("<I", 2_000_000_000))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(FrameError, match="cannot be read"):
        FrameReader().feed(struct.pack("<I", 4) + b"none")


def test_what_a_step_sends_is_the_same_afterwards() -> None:
    chunk = StreamChunk("é", [1, 2], [{1: Logprob(-0.5, 1, "é")}, {}], "stop", None, 3)
    assert pickle.loads(pickle.dumps(chunk)) == chunk


def test_the_engine_reads_what_is_there_and_waits_only_if_told(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    seam = EngineSeam(theirs)
    assert seam.receive(0) == []
    ours.sendall(frame(1) + frame(2))
    assert seam.receive(None) == [1, 2]
    started = time.monotonic()
    assert seam.receive(0.05) == []
    assert time.monotonic() - started >= 0.05
    large = bytes(3 << 20)  # more than the socket holds
    sender = threading.Thread(target=ours.sendall, args=(frame(large) + frame(3),))
    sender.start()
    found = []
    while len(found) < 2:
        found += seam.receive(None)
    sender.join()
    assert found == [large, 3]
    ours.close()
    with pytest.raises(EOFError):
        seam.receive(None)


def test_the_engine_does_not_wait_for_a_server_that_does_not_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    seam = EngineSeam(theirs)
    messages = [bytes(100_000) + bytes([i]) for i in range(100)]
    for message in messages:  # without anybody who reads: a call that waited would never return
        seam.send(message)
    ours.sendall(frame("a question"))
    assert seam.receive(0) == ["a question"]
    reader, found = FrameReader(), []
    ours.setblocking(False)
    while len(found) < len(messages):
        try:
            found += reader.feed(ours.recv(1 << 16))
        except BlockingIOError:
            seam.flush(0.01)
    assert found == messages


def test_what_is_kept_for_a_server_that_does_not_read_is_bounded(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing, "MOST_UNSENT_BYTES", 1 << 20)
    ours, theirs = pair
    seam = EngineSeam(theirs)
    sent = 0

    def send() -> None:
        nonlocal sent
        for _ in range(100):
            seam.send(bytes(100_000))
            sent += 1
        seam.flush(60)

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(0.3)
    assert sender.is_alive()
    assert sent < 50
    reader, received = FrameReader(), 0
    while received < 100:
        received += len(reader.feed(ours.recv(1 << 20)))
    sender.join(10)
    assert not sender.is_alive()


def test_the_engine_notices_a_server_that_has_gone_while_it_sends(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    seam = EngineSeam(theirs)
    seam.send("unread")
    ours.close()
    with pytest.raises(EOFError):
        seam.send("more")


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_server_end_reads_and_writes_on_the_event_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        seen: list[object] = []
        ended: list[Exception | None] = []
        server = ServerSeam(seen.append, ended.append)
        await asyncio.get_running_loop().create_unix_connection(lambda: server, sock=ours)
        with theirs:
            engine = EngineSeam(theirs)
            large = bytes(5 << 20)
            server.send(large)  # returns at once: nobody has read
            server.send("after")
            found: list[object] = []
            while len(found) < 2:
                found += await asyncio.to_thread(engine.receive, 0.2)
            assert found == [large, "after"]
            assert not server.has_unread
            engine.send({"a": 1})
            assert server.has_unread
            while not seen:
                await asyncio.sleep(0.001)
            assert seen == [{"a": 1}]
            assert not server.has_unread
            theirs.send(struct.pack("<I", 4) + b"none")
            while not ended:
                await asyncio.sleep(0.001)
            assert isinstance(ended[0], FrameError)
        server.close()
        server.send("to nobody")
        assert len(ended) == 1

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
