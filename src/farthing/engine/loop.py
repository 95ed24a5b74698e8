"""The loop around an engine: whoever waits for a result steps it for all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from farthing.engine.engine import Engine, TokenEvent
from farthing.engine.output_processor import OutputProcessor
from farthing.engine.outputs import StreamChunk


class EngineLoop:
    """Shares one engine among callers in any number of threads.

    ``clock`` gives seconds and never goes back.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.perf_counter) -> None:
        self.engine = engine
        self._clock = clock
        self._processors: dict[str, OutputProcessor] = {}
        self._left: deque[OutputProcessor] = deque()  # nobody waits, not yet out of the engine
        self._lock = threading.RLock()
        self._stepping = False  # read and written under the lock

    def now(self) -> float:
        """What its clock shows."""
        return self._clock()

    def submit(self, choices: Sequence[OutputProcessor]) -> None:
        """Queues the choices of one prompt."""
        with self._lock:
            for processor in choices:
                self._processors[processor.request.request_id] = processor
            self.engine.add_request(choices[0].request, self._clock())

    def step(self) -> None:
        """One pass, for all."""
        with self._lock:
            self._step()

    def advance(self, choices: Sequence[OutputProcessor]) -> tuple[list[StreamChunk], bool]:
        """A pass, if one of ``choices`` needs it; their new chunks, and whether all have ended.

        Raises the error of a choice that ended with one.
        """
        with self._lock:
            if not all(processor.request.finished for processor in choices):
                self._step()
            finished = all(processor.request.finished for processor in choices)
            return [chunk for processor in choices for chunk in processor.take()], finished

    def _step(self) -> None:
        self._drop_left()
        self._stepping = True
        try:
            started = self._clock()
            events = self.engine.step(started)
            ended = self._clock()
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
            self.engine.abort(processor.request)
            self._processors.pop(processor.request.request_id, None)
