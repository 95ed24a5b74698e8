"""The engine process, as the server sees it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from farthing.errors import FarthingError
from farthing.openai_protocol.errors import RequestError
from farthing.server.engine_child import ENGINE_COMMAND, EngineChild, describe_exit
from farthing.server.engine_settings import EngineSettings
from farthing.server.seam.framing import ServerSeam
from farthing.server.seam.messages import (
    Abort,
    Accepted,
    AskMetrics,
    CheckIntegrity,
    EngineInfo,
    Failed,
    Integrity,
    Loading,
    Metrics,
    Ready,
    Refused,
    Stepped,
    Stop,
    Stopped,
    Submit,
)
from farthing.server.submission import Submission

CRASHED, HUNG, STOPPED = "engine_crashed", "engine_hung", "server_shutdown"
"""Codes of the error that ends an answer with the engine."""

LAST_WORDS_SECONDS = 5.0
"""For an engine that has failed, or does not talk any more, to end by itself."""

_log = logging.getLogger(__name__)


class EngineEndedError(RequestError):
    """The engine process is gone, or is about to go: the error of those whose answers that ends.

    ``exit_status``: negative for a signal, None if not known yet. Its ``code`` says whose doing it
    was: ``engine_crashed`` its own, ``engine_hung`` the watchdog's, another that of who stopped it,
    and then it is for a time (503).
    """

    def __init__(
        self,
        message: str,
        exit_status: int | None = None,
        *,
        code: str = CRASHED,
        retry_after: float | None = None,
    ) -> None:
        temporary = retry_after is not None
        super().__init__(
            message,
            status=503 if temporary else 500,
            type="service_unavailable" if temporary else "server_error",
            code=code,
            retry_after=retry_after,
        )
        self.message = message
        self.exit_status = exit_status


class EngineClient:
    """Starts an engine process and speaks with it; all methods belong to one event loop.

    ``command`` is another program to run as the child; it gets the number of its socket as its
    last argument. ``on_step`` is told of every turn before those who wait for its tokens.
    ``settings`` may be changed before :meth:`start`.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        command: Sequence[str] | None = None,
        on_step: Callable[[Stepped], None] = lambda stepped: None,
    ) -> None:
        self.info: EngineInfo | None = None
        self.loading = (0, 0)  # bytes of weights: in memory, all
        self.last_turn = time.monotonic()
        self.ended: asyncio.Future[EngineEndedError]  # from start() on; never an exception
        self.settings = settings
        self._command = command or ENGINE_COMMAND
        self._on_step = on_step
        self._keys = itertools.count(1)
        self._open: dict[int, Submission] = {}
        self._busy_since = 0.0
        self._answers: dict[int, asyncio.Future[Metrics | Integrity]] = {}
        self._child: EngineChild | None = None
        self._seam = ServerSeam(self._on_message, self._on_seam_end)
        self._seam_problem: Exception | None = None
        self._seam_ended = False
        self._exit_status: int | None = None
        self._failed: Failed | None = None
        self._stopping = False
        self._hung: str | None = None  # what the watchdog says of it
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def pid(self) -> int | None:
        """Of the engine process, once it is started."""
        return self._child.pid if self._child is not None else None

    @property
    def in_flight(self) -> int:
        """Prompts that were submitted and have not ended."""
        return len(self._open)

    async def start(self) -> None:
        """Starts the process, which then loads. Raises :class:`FarthingError` if it cannot."""
        loop = asyncio.get_running_loop()
        self.ended = loop.create_future()
        self._loaded: asyncio.Future[None] = loop.create_future()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._child = EngineChild(self._command, theirs, self._on_exit)
            await loop.create_unix_connection(lambda: self._seam, sock=ours)
        except BaseException:
            ours.close()
            self._seam_ended = True
            raise
        self._seam.send(self.settings)

    async def ready(self) -> EngineInfo:
        """Waits until the model is loaded.

        Raises :class:`FarthingError` saying what is wrong with what it was given,
        :class:`EngineEndedError` if the process has ended for another reason.
        """
        await asyncio.wait((self._loaded, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if self.info is not None:
            return self.info
        error = self.ended.result()
        if self._failed is not None and not self._failed.internal:
            raise FarthingError(self._failed.message) from error
        raise error

    def next_key(self) -> int:
        """A number for the next prompt."""
        return next(self._keys)

    async def submit(self, message: Submit) -> Submission:
        """Returns when the engine has queued the prompt.

        Raises :class:`RequestError` if it is refused, :class:`EngineEndedError`.
        """
        self._require_engine()
        submission = Submission(message, self._abort)
        if not self._open:
            self._busy_since = time.monotonic()
        self._open[message.key] = submission
        try:
            self._seam.send(message)
            await submission.accepted()
        except BaseException:
            submission.abort()
            raise
        return submission

    def _require_engine(self) -> None:
        if self.info is None:
            raise EngineEndedError("the engine has not been loaded", self._exit_status)
        if self.ended.done():
            raise self.ended.result()
        if self._stopping:
            raise EngineEndedError("the engine is being stopped", self._exit_status)

    def _abort(self, key: int) -> None:
        if self._open.pop(key, None) is not None:
            self._seam.send(Abort(key))

    async def metrics(self, timeout: float) -> Metrics | None:
        """What the engine has done and has to do; None if it does not say so in time.

        It answers between two steps.
        """
        answer = await self._ask(AskMetrics(next(self._keys)), timeout)
        return answer if isinstance(answer, Metrics) else None

    async def check_integrity(self, timeout: float = 30.0) -> Integrity | None:
        """Whether blocks and requests are accounted for: for tests. None: no answer in time."""
        answer = await self._ask(CheckIntegrity(next(self._keys)), timeout)
        return answer if isinstance(answer, Integrity) else None

    async def _ask(
        self, question: AskMetrics | CheckIntegrity, timeout: float
    ) -> Metrics | Integrity | None:
        if self.info is None or self._stopping or self.ended.done():
            return None
        answer: asyncio.Future[Metrics | Integrity]
        answer = self._answers[question.ticket] = asyncio.get_running_loop().create_future()
        self._seam.send(question)
        try:
            await asyncio.wait(
                (answer, self.ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            return answer.result() if answer.done() else None
        finally:
            del self._answers[question.ticket]

    def stalled_for(self) -> float:
        """Seconds since the loop's last sign of life while prompts are in flight, else 0.

        0 also where there is one that this event loop has had no time to read.
        """
        if not self._open or self.info is None or self._seam.has_unread:
            return 0.0
        return time.monotonic() - max(self.last_turn, self._busy_since)

    async def stop(self, patience: float, why: EngineEndedError | None = None) -> int:
        """Ends the process: its exit status. Twice is once.

        What is in flight gets ``why``. An engine that is loading, or that has not saved its prefix
        cache and ended within ``patience`` seconds, is killed.
        """
        if self._child is None:
            return 0
        self._stopping = True
        self._end_submissions(why or EngineEndedError("the engine was stopped", code=STOPPED))
        if self.info is None:
            self._child.kill()
        else:
            self._seam.send(Stop())
        await asyncio.wait((self.ended,), timeout=patience)
        self._child.kill()
        await asyncio.wait((self.ended,), timeout=2 * LAST_WORDS_SECONDS)
        return -signal.SIGKILL if self._exit_status is None else self._exit_status

    def abort_with_trace(self, why: str) -> None:
        """Has the process write all its stacks to stderr and die, by SIGKILL if need be.

        ``why`` is told to those whose answers that ends.
        """
        if self._child is not None:
            self._hung = why
            self._child.abort()
            self._kill_later()

    # What the process says, in the order of its life.

    def _on_message(self, message: Any) -> None:
        self.last_turn = time.monotonic()
        match message:
            case Stepped():
                self._on_stepped(message)
            case Accepted():
                if message.key in self._open:
                    self._open[message.key].on_accepted()
            case Refused():
                self._end_submission(message.key, message.error)
            case Metrics() | Integrity():
                answer = self._answers.get(message.ticket)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case Loading():
                self.loading = message.done, message.total
            case Ready():
                self.info = message.info
                self._loaded.set_result(None)
            case Failed():
                self._failed = message
                self._kill_later()
            case Stopped():
                self._kill_later()

    def _on_stepped(self, stepped: Stepped) -> None:
        try:
            self._on_step(stepped)
        except Exception:  # those who wait for their tokens are not to blame
            _log.exception("a turn of the engine could not be taken note of")
        submissions = self._open
        for key, found in stepped.prompt_logprobs:  # before what may be a last chunk
            if key in submissions:
                submissions[key].on_prompt_logprobs(found)
        for key, chunk in stepped.chunks:
            submission = submissions.get(key)
            if submission is not None:
                submission.on_chunk(chunk)
                if submission.ended:
                    del submissions[key]
        for key, output in stepped.outputs:
            if key in submissions:
                submissions.pop(key).on_output(output)
        for key, error in stepped.failures:
            self._end_submission(key, error)

    def _end_submission(self, key: int, error: FarthingError) -> None:
        submission = self._open.pop(key, None)
        if submission is not None:
            submission.on_error(error)

    def _end_submissions(self, error: FarthingError) -> None:
        for key in list(self._open):
            self._end_submission(key, error)

    # Its end: known when it has exited and all that it said has been read.

    def _on_exit(self, status: int) -> None:
        self._exit_status = status
        if not self._seam_ended:  # a process of its own may have kept the socket
            self._later(self._seam.close)
        self._end_if_over()

    def _on_seam_end(self, problem: Exception | None) -> None:
        self._seam_ended, self._seam_problem = True, problem
        if self._exit_status is None:
            self._kill_later()
        self._end_if_over()

    def _kill_later(self) -> None:
        assert self._child is not None
        self._later(self._child.kill)

    def _later(self, call: Callable[[], None]) -> None:
        loop = self.ended.get_loop()
        self._timers.append(loop.call_later(LAST_WORDS_SECONDS, call))

    def _end_if_over(self) -> None:
        if self._exit_status is None or not self._seam_ended or self.ended.done():
            return
        for timer in self._timers:
            timer.cancel()
        code = STOPPED if self._stopping else CRASHED if self._hung is None else HUNG
        error = EngineEndedError(self._why(self._exit_status), self._exit_status, code=code)
        self.ended.set_result(error)
        self._end_submissions(error)

    @property
    def how_it_ended(self) -> str:
        """In words, once it is stopped: its exit status, or whose signal ended it."""
        status = -signal.SIGKILL if self._exit_status is None else self._exit_status
        was_killed = self._child is not None and self._child.was_killed
        return describe_exit(status, was_killed=was_killed)

    def _why(self, status: int) -> str:
        assert self._child is not None
        if self._stopping and (status == 0 or self._child.was_killed):
            return "the engine was stopped"
        how = self.how_it_ended
        if self._hung is not None:
            return f"{self._hung} ({how})"
        if self._failed is not None:
            return f"the engine has failed ({how}): {self._failed.message}"
        if self._seam_problem is not None:
            return f"the engine process has ended ({how}): {self._seam_problem}"
        return f"the engine process has ended: {how}"
