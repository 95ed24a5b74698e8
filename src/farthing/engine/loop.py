"""The loop around an engine: whoever waits for a result steps it for all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from farthing.engine.engine import Engine, TokenEvent
from farthing.engine.interrupts import InterruptsHeld
from farthing.engine.output_processor import OutputProcessor
from farthing.engine.outputs import StreamChunk
from farthing.errors import FarthingError


class EngineLoop:
    """Shares one engine among callers in any number of threads.

    ``clock`` gives seconds and never goes back. Ctrl-C acts between two passes: whoever is
    interrupted leaves an engine that others go on with.
    """

    NAP = 0.002
    """Seconds between two looks at a static batch that is being collected."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.perf_counter) -> None:
        self.engine = engine
        self._clock = clock
        self._processors: dict[str, OutputProcessor] = {}
        self._left: deque[OutputProcessor] = deque()  # nobody waits, not yet out of the engine
        self._lock = threading.RLock()
        self._stepping = False  # read and written under the lock
        self._closing = threading.Lock()
        self._closed = False  # no pass begins any more
        self._ended = threading.Event()  # and all requests have ended

    def require_open(self) -> None:
        """Raises :class:`FarthingError` once the loop is closed."""
        if self._closed:
            raise FarthingError("this LLM is closed; load the model again to generate with it")

    def close(self) -> bool:
        """Ends all requests, whose owners are told, and takes no others; False if it was closed.

        Waits for the pass of another thread. Raises :class:`FarthingError` within a pass.
        """
        if self._in_own_pass():
            raise FarthingError("an LLM cannot be closed in the middle of its own pass")
        with self._closing:
            if self._closed:
                return False
            self._closed = True  # before the lock: who has it would go on and on
            try:
                with self._lock, InterruptsHeld():
                    self._end_all()
            finally:
                self._ended.set()
            return True

    def _in_own_pass(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # another thread's
        try:
            return self._stepping
        finally:
            self._lock.release()

    def _end_all(self) -> None:
        self._drop_left()
        for processor in self._processors.values():
            if not processor.request.finished:
                processor.error = FarthingError("the LLM was closed before the answer ended")
                self.engine.abort(processor.request)

    def now(self) -> float:
        """What its clock shows."""
        return self._clock()

    def submit(self, choices: Sequence[OutputProcessor]) -> None:
        """Queues the choices of one prompt, which arrive now: a pass of others may have to end."""
        arrived = self._clock()
        with self._lock, InterruptsHeld():
            self.require_open()
            for processor in choices:
                self._processors[processor.request.request_id] = processor
            self.engine.add_request(choices[0].request, arrived)

    def step(self) -> None:
        """One pass, for all."""
        self._let_closing_through()
        with self._lock, InterruptsHeld():
            if not self._closed:
                self._step()

    def advance(self, choices: Sequence[OutputProcessor]) -> tuple[list[StreamChunk], bool]:
        """A pass, if one of ``choices`` needs it; their new chunks, and whether all have ended.

        Raises the error of a choice that ended with one.
        """
        self._let_closing_through()
        with self._lock, InterruptsHeld():
            if not self._closed and not all(p.request.finished for p in choices):
                self._step()
            finished = all(processor.request.finished for processor in choices)
            return [chunk for processor in choices for chunk in processor.take()], finished

    def _let_closing_through(self) -> None:
        """Whoever closes has the lock first."""
        if self._closed:
            self._ended.wait()

    def _step(self) -> None:
        self._drop_left()
        self._stepping = True
        try:
            started = self._clock()
            events = self.engine.step(started)
            ended = self._clock()
            if not events and not self.engine.scheduler.holders() and self.engine.has_work:
                time.sleep(self.NAP)
            for event in events:
                self._process(event)
            self.engine.record(events, started, ended)
        finally:
            self._stepping = False

    def _process(self, event: TokenEvent) -> None:
        processor = self._processors[event.request.request_id]
        try:
            if stop := processor.process(event):
                self.engine.stop(event.request, stop)
        except Exception as error:  # its owner hears of it; its neighbours go on
            processor.error = error
            self.engine.fail(event.request)

    def forget(self, choices: Sequence[OutputProcessor]) -> None:
        """Ends requests that nobody waits for.

        The garbage collector may close a stream in the middle of this thread's own step, so the
        engine is told only between steps.
        """
        with InterruptsHeld():
            self._left.extend(choices)
            if self._lock.acquire(blocking=False):
                try:
                    if not self._stepping:
                        self._drop_left()
                finally:
                    self._lock.release()

    def _drop_left(self) -> None:
        while self._left:
            processor = self._left.popleft()
            if self._processors.pop(processor.request.request_id, None) is not None:
                self.engine.abort(processor.request)  # else it was never queued
