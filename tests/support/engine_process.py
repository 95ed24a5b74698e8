"""Engine processes of tests, each with the event loop that its client belongs to."""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from farthing import RequestOutput, SamplingParams, StreamChunk
from farthing.server.engine_client import EngineClient
from farthing.server.engine_settings import EngineSettings
from farthing.server.seam.messages import Stepped, Submit
from farthing.server.submission import Submission

T = TypeVar("T")
FAULTY_ENGINE = Path(__file__).parent / "faulty_engine.py"


def faulty(fault: str, step: int) -> list[str]:
    """Command of an engine process with a fault (``faulty_engine.py``) at its ``step``-th pass."""
    return [sys.executable, str(FAULTY_ENGINE), fault, str(step)]


class RunningEngine:
    """An engine process that is ready, until the block is left."""

    def __init__(
        self,
        model: Path,
        *,
        command: Sequence[str] | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
        **settings: Any,
    ) -> None:
        self.steps: list[Stepped] = []
        self.runner = asyncio.Runner(loop_factory=loop_factory)
        self.client = EngineClient(
            EngineSettings(
                model=model, **{"num_threads": 1, "measure_bandwidth": False, **settings}
            ),
            command=command,
            on_step=self.steps.append,
        )

    def __enter__(self) -> Self:
        self.runner.__enter__()
        self.run(self._start())
        return self

    async def _start(self) -> None:
        await self.client.start()
        await self.client.ready()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.client.stop(10))
        self.runner.__exit__(kind, error, trace)

    def run(self, awaitable: Awaitable[T]) -> T:
        """What ``awaitable`` gives, within a minute."""

        async def in_time() -> T:
            return await asyncio.wait_for(awaitable, 60)

        return self.runner.run(in_time())

    async def submit(
        self, prompt: Sequence[int], params: SamplingParams, *, stream: bool = True, **more: Any
    ) -> Submission:
        """Queues a prompt."""
        key = self.client.next_key()
        return await self.client.submit(Submit(key, array("i", prompt), params, stream, **more))

    async def stream(
        self, prompt: Sequence[int], params: SamplingParams, **more: Any
    ) -> list[StreamChunk]:
        """All chunks of a prompt."""
        return await all_chunks(await self.submit(prompt, params, **more))

    async def generate(
        self, prompt: Sequence[int], params: SamplingParams, **more: Any
    ) -> RequestOutput:
        """The whole result of a prompt."""
        submission = await self.submit(prompt, params, stream=False, **more)
        return await submission.output()

    async def settle(self) -> None:
        """Asserts that nothing is left in the engine and every block is accounted for."""
        found = await self.client.check_integrity()
        assert found is not None
        assert found.problem is None
        assert (found.open_prompts, found.held_blocks) == (0, 0)
        assert found.free_blocks + found.cached_blocks == found.num_blocks > 0
        assert self.client.in_flight == 0


async def all_chunks(submission: Submission) -> list[StreamChunk]:
    """Every chunk of a submission to its end."""
    return [chunk async for chunks in submission.chunks() for chunk in chunks]
