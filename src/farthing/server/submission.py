"""One prompt in the engine process, as its owner in the server sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from farthing.engine.outputs import Logprob, RequestOutput, StreamChunk
from farthing.errors import FarthingError
from farthing.openai_protocol.errors import RequestError
from farthing.server.seam.messages import Submit


class Submission:
    """What comes of a prompt. Whoever reads it slowly makes only its own list grow.

    Made by :meth:`EngineClient.submit`, which also calls the methods that begin with ``on``.
    """

    def __init__(self, message: Submit, abort: Callable[[int], None]) -> None:
        self.key = message.key
        self._message = message
        self._abort = abort
        self._accepted = False
        self._chunks: list[StreamChunk] = []
        self.prompt_logprobs: list[dict[int, Logprob] | None] = []
        """Those that are known: of the whole prompt once there is a token of an answer."""
        self._output: RequestOutput | None = None
        self._unfinished = message.params.n  # choices whose final chunk has not come
        self._error: FarthingError | None = None
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._unfinished == 0 or self._output is not None or self._error is not None

    async def accepted(self) -> None:
        """Returns when the engine has queued it; raises :class:`RequestError`, or why not."""
        while not self._accepted:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def chunks(self) -> AsyncIterator[list[StreamChunk]]:
        """All that is new, each time; ends after the last choice's final chunk.

        Raises :class:`RequestError` or :class:`EngineEndedError` after what came before.
        """
        while True:
            taken, self._chunks = self._chunks, []
            if taken:
                yield taken
            elif self._error is not None:
                raise self._error
            elif self._unfinished == 0:
                return
            else:
                await self._wait()

    async def output(self) -> RequestOutput:
        """The whole result, if it is not streamed; raises as :meth:`chunks`."""
        while self._output is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._output

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()

    def abort(self) -> None:
        """Ends it in any state; its blocks are free before the engine's next step. Twice is once.

        Who still waits for it gets a :class:`RequestError`.
        """
        if not self.ended:
            self._abort(self.key)
            self.on_error(
                RequestError("the request was aborted", status=499, code="request_aborted")
            )

    def on_accepted(self) -> None:
        """That the engine has it."""
        self._accepted = True
        self._news.set()

    def on_chunk(self, chunk: StreamChunk) -> None:
        """A part of a streamed answer."""
        self._chunks.append(chunk)
        self._unfinished -= chunk.finish_reason is not None
        self._news.set()

    def on_output(self, output: RequestOutput) -> None:
        """A whole answer; the prompt's ids stayed here."""
        logprobs = output.prompt_logprobs
        self._output = replace(
            output,
            prompt_token_ids=list(self._message.prompt_token_ids),
            prompt_logprobs=None if logprobs is None else [*self.prompt_logprobs, *logprobs],
        )
        self._news.set()

    def on_prompt_logprobs(self, found: list[dict[int, Logprob] | None]) -> None:
        """Those of a part of the prompt, which go before what the answer has of them."""
        self.prompt_logprobs += found

    def on_error(self, error: FarthingError) -> None:
        """That it is refused, or has failed."""
        self._error = error
        self._news.set()
