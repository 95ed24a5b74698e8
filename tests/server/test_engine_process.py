"""The life of an engine process: its end, whatever ends it, is told and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farthing import SamplingParams
from farthing.errors import FarthingError
from farthing.openai_protocol.errors import RequestError
from farthing.server.engine_client import EngineClient, EngineEndedError
from farthing.server.engine_settings import EngineSettings
from farthing.server.submission import Submission
from support.engine_process import RunningEngine, all_chunks, faulty
from support.full_pipe import full_pipe
from support.packing import pack

PROMPT = list(range(10, 50))
LONG = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def end_of(engine: RunningEngine, cause: Callable[[], None]) -> EngineEndedError:
    """Submits streams and wholes, lets ``cause`` happen; asserts that all are told of the end."""

    async def result(stream: bool) -> object:
        submission = await engine.submit(PROMPT, LONG, stream=stream)
        submitted.append(submission)
        return await (all_chunks(submission) if stream else submission.output())

    submitted: list[Submission] = []
    results = [asyncio.create_task(result(i % 2 == 0)) for i in range(6)]
    while not submitted:
        await asyncio.sleep(0.001)
    cause()
    error = await asyncio.wait_for(asyncio.shield(engine.client.ended), 20)
    assert await asyncio.gather(*results, return_exceptions=True) == [error] * 6
    with pytest.raises(EngineEndedError) as raised:
        await engine.submit(PROMPT, SHORT)
    assert raised.value is error
    assert engine.client.in_flight == 0
    assert engine.client.stalled_for() == 0
    assert await engine.client.metrics(1) is None
    return error


def test_an_engine_that_is_killed(tiny_model: Path) -> None:
    with RunningEngine(tiny_model) as engine:
        pid = engine.client.pid
        assert pid is not None
        started = time.monotonic()
        error = engine.run(end_of(engine, lambda: os.kill(pid, signal.SIGKILL)))
        assert time.monotonic() - started < 2
        assert error.exit_status == -signal.SIGKILL
        assert "SIGKILL (what the system sends when memory runs out)" in str(error)
        assert engine.run(engine.client.stop(1)) == -signal.SIGKILL
        assert "when memory runs out" in engine.client.how_it_ended


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_step_that_raises(step: int, tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with RunningEngine(tiny_model, command=faulty("raise", step)) as engine:
        error = engine.run(end_of(engine, lambda: None))
    assert error.exit_status == 1
    assert "exit status 1" in str(error)
    assert "RuntimeError: a fault of a test" in str(error)
    (line,) = capfd.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry["level"] == "error"
    assert 'raise RuntimeError("a fault of a test")' in entry["exception"]


def test_a_trace_that_nobody_reads_does_not_hold_up_the_end(tiny_model: Path) -> None:
    """The engine's stderr is a pipe that is full."""
    stderr = os.dup(2)
    with full_pipe() as full:
        os.dup2(full, 2)
        try:
            with RunningEngine(tiny_model, command=faulty("raise", 3)) as engine:
                os.dup2(stderr, 2)
                began = time.monotonic()
                error = engine.run(end_of(engine, lambda: None))
                assert time.monotonic() - began < 5, "a second for the log, and some to end"
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    assert error.exit_status == 1
    assert "RuntimeError: a fault of a test" in str(error)


def test_a_crash_in_native_code(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with RunningEngine(tiny_model, command=faulty("crash", 5)) as engine:
        error = engine.run(end_of(engine, lambda: None))
    assert error.exit_status == -signal.SIGSEGV
    assert (error.status, error.code) == (500, "engine_crashed")
    assert "SIGSEGV" in str(error)
    assert "faulty_run" in capfd.readouterr().err


def test_weights_that_are_cut_while_in_use_are_named(
    tiny_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    packed = pack(tiny_model, tmp_path / "packed")
    with RunningEngine(packed) as engine:
        os.truncate(packed / "model.safetensors", 4096)
        error = engine.run(end_of(engine, lambda: None))
    assert error.exit_status == -signal.SIGBUS
    assert f"{packed}: a file of the model became shorter" in capfd.readouterr().err


def test_an_engine_that_hangs_is_seen_and_shows_where(
    tiny_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with RunningEngine(tiny_model, command=faulty("hang", 4)) as engine:
        client = engine.client
        assert client.stalled_for() == 0

        async def main() -> EngineEndedError:
            submission = await engine.submit(PROMPT, LONG)
            while client.stalled_for() < 0.3:
                await asyncio.sleep(0.01)
            assert await client.metrics(0.05) is None
            client.abort_with_trace("it hangs")
            with pytest.raises(EngineEndedError) as raised:
                await all_chunks(submission)
            return raised.value

        error = engine.run(main())
    assert error.exit_status == -signal.SIGABRT
    assert (str(error), error.code) == ("it hangs (SIGABRT)", "engine_hung")
    shown = capfd.readouterr().err
    assert "Fatal Python error: Aborted" in shown
    assert "faulty_run" in shown


@pytest.mark.slow
def test_an_engine_that_hangs_while_nobody_reads_where_is_killed(tiny_model: Path) -> None:
    """It cannot write its stacks."""
    stderr = os.dup(2)
    with full_pipe() as full:
        os.dup2(full, 2)
        try:
            with RunningEngine(tiny_model) as engine:
                os.dup2(stderr, 2)
                engine.client.abort_with_trace("it hangs")
                error = engine.run(engine.client.ended)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    assert error.exit_status == -signal.SIGKILL
    assert str(error) == "it hangs (SIGKILL, which the server sent as it did not end in time)"


def test_an_engine_that_was_stopped_shows_where_and_dies_too(
    tiny_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with RunningEngine(tiny_model) as engine:
        pid = engine.client.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        engine.client.abort_with_trace("it was stopped")
        error = engine.run(asyncio.wait_for(engine.client.ended, 10))
    assert error.exit_status == -signal.SIGABRT
    assert "Current thread" in capfd.readouterr().err


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fault", "message"),
    [("nan", "not finite"), ("garble", "internal error: ValueError: text of a test")],
)
def test_what_happens_to_one_request_ends_that_alone(
    fault: str, message: str, stream: bool, tiny_model: Path
) -> None:
    several = SamplingParams(n=3, seed=1, max_tokens=20, ignore_eos=True)

    async def main(engine: RunningEngine) -> list[Any]:
        first = await engine.submit([3, *PROMPT], several, stream=stream)
        second = await engine.submit(PROMPT, LONG, stream=False)
        result = all_chunks(first) if stream else first.output()
        return await asyncio.gather(result, second.output(), return_exceptions=True)

    with RunningEngine(tiny_model) as engine:
        _, expected = engine.run(main(engine))
    with RunningEngine(tiny_model, command=faulty(fault, 6)) as engine:
        failed, whole = engine.run(main(engine))
        engine.run(engine.settle())
    assert isinstance(failed, RequestError)
    assert (failed.status, failed.type) == (500, "server_error")
    assert message in str(failed)
    assert whole.outputs == expected.outputs


def test_signals_for_the_whole_group_are_the_servers(tiny_model: Path) -> None:
    async def main(client: EngineClient) -> None:
        await client.start()
        assert client.pid is not None
        for _ in range(40):  # while it starts, loads, and is ready
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(client.pid, number)
            await asyncio.sleep(0.02)
        await client.ready()
        os.kill(client.pid, signal.SIGINT)
        assert await client.metrics(5) is not None
        assert await client.stop(10) == 0

    asyncio.run(main(EngineClient(EngineSettings(model=tiny_model, num_threads=1))))


def test_stop_ends_all_and_leaves_nothing(tiny_model: Path) -> None:
    with RunningEngine(tiny_model, loop_factory=asyncio.new_event_loop) as engine:
        pid = engine.client.pid
        assert pid is not None

        async def main() -> int:
            submission = await engine.submit(PROMPT, LONG)
            status, again = await asyncio.gather(engine.client.stop(10), engine.client.stop(10))
            with pytest.raises(EngineEndedError, match="the engine was stopped"):
                await all_chunks(submission)
            assert again == status
            return status

        assert engine.run(main()) == 0
        assert has_ended(pid)
        with pytest.raises(EngineEndedError):
            engine.run(engine.submit(PROMPT, SHORT))


def test_an_engine_that_does_not_stop_is_killed(tiny_model: Path) -> None:
    with RunningEngine(tiny_model, command=faulty("hang", 2)) as engine:

        async def main() -> int:
            submission = await engine.submit(PROMPT, LONG)
            await anext(submission.chunks())
            while engine.client.stalled_for() < 0.1:  # it is in the second pass by now
                await asyncio.sleep(0.01)
            return await engine.client.stop(0.2)

        assert engine.run(main()) == -signal.SIGKILL
        how = "SIGKILL, which the server sent as it did not end in time"
        assert engine.client.how_it_ended == how
        assert str(engine.client.ended.result()) == "the engine was stopped"


def test_stop_while_it_loads(tiny_model: Path) -> None:
    async def main(client: EngineClient) -> int:
        assert await client.stop(1) == 0  # never started
        await client.start()
        return await client.stop(5)

    client = EngineClient(EngineSettings(model=tiny_model))
    started = time.monotonic()
    assert asyncio.run(main(client)) != 0
    assert time.monotonic() - started < 4


def load_failure(settings: EngineSettings) -> tuple[Exception, int]:
    """What :meth:`EngineClient.ready` raises, and the exit status."""

    async def main(client: EngineClient) -> tuple[Exception, int]:
        await client.start()
        with pytest.raises(FarthingError) as raised:
            await client.ready()
        return raised.value, await client.stop(1)

    return asyncio.run(main(EngineClient(settings)))


def test_what_the_user_can_put_right_is_told(tiny_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    for settings, message in (
        (EngineSettings(model=broken), "broken.gguf"),
        (EngineSettings(model=tmp_path / "none"), "none"),
        (EngineSettings(model=tiny_model, max_model_len=100_000), "max_model_len=100000"),
        (EngineSettings(model=tiny_model, adapter=tmp_path), str(tmp_path)),
        (EngineSettings(model=tiny_model, kv_cache_tokens=1 << 40), "are available"),
    ):
        error, status = load_failure(settings)
        assert not isinstance(error, EngineEndedError)
        assert message in str(error)
        assert status == 2


def test_a_program_that_is_no_engine(tiny_model: Path) -> None:
    async def main(command: list[str]) -> None:
        client = EngineClient(EngineSettings(model=tiny_model), command=command)
        await client.start()
        with pytest.raises(EngineEndedError, match="exit status 7"):
            await client.ready()
        assert await client.stop(1) == 7

    asyncio.run(main(["sh", "-c", "exit 7"]))
    with pytest.raises(FarthingError, match="cannot be started: No such file"):
        asyncio.run(main(["/no/such/program"]))


def test_the_prefix_cache_is_saved_at_the_end_and_restored(
    tiny_model: Path, tmp_path: Path
) -> None:
    restored, cached = [], []
    for _ in range(2):
        with RunningEngine(tiny_model, prefix_cache=tmp_path / "kept") as engine:
            output = engine.run(engine.generate(PROMPT, SHORT))
            assert engine.client.info is not None
            restored.append(engine.client.info.restored_tokens)
            cached.append(output.metrics.cached_tokens)
            assert engine.run(engine.client.stop(10)) == 0
    assert restored == [0, 32]
    assert cached == [0, 32]


_ORPHAN = """
import asyncio, sys
from array import array
from pathlib import Path
from farthing import SamplingParams
from farthing.server.engine_client import EngineClient
from farthing.server.engine_settings import EngineSettings
from farthing.server.submission import Submission
from farthing.server.seam.messages import Submit

async def main():
    client = EngineClient(EngineSettings(model=Path(sys.argv[1])), command=sys.argv[2:] or None)
    await client.start()
    await client.ready()
    await client.submit(
        Submit(1, array("i", [5]), SamplingParams(max_tokens=200, ignore_eos=True), True)
    )
    print(client.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "in a pass that does not end"])
def test_an_engine_whose_server_is_killed_ends(state: str, tiny_model: Path) -> None:
    command = [] if state == "idle" else faulty("hang", 3)
    with subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, str(tiny_model), *command], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        time.sleep(0.2)
        assert not has_ended(pid)
        server.kill()
    deadline = time.monotonic() + 2
    while not has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
