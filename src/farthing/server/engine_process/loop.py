"""The loop: read what has come, step, tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from farthing.engine.engine import Engine
from farthing.server.engine_process.prompts import News, OpenPrompts
from farthing.server.seam.framing import EngineSeam
from farthing.server.seam.messages import (
    Abort,
    Accepted,
    AskMetrics,
    CheckIntegrity,
    Integrity,
    Metrics,
    Refused,
    Stepped,
    Stop,
    Submit,
)
from farthing.tokenization.tokenizer import Tokenizer

QUEUEING_SECONDS = 0.005
"""What a turn spends at most on queueing prompts, that a crowd of them does not hold up a step."""

COLLECTING_SECONDS = 0.002
"""Between two looks at a static batch that is not full."""


class EngineProcessLoop:
    """Steps an engine for the server at the other end of ``seam``, until it says stop.

    ``clock`` gives seconds that both processes read the same.
    """

    def __init__(
        self,
        seam: EngineSeam,
        engine: Engine,
        tokenizer: Tokenizer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seam = seam
        self._engine = engine
        self._prompts = OpenPrompts(engine, tokenizer, clock)
        self._clock = clock
        self._stopped = False
        self._collecting = False  # a static batch: nothing was computed

    def run(self, early: Sequence[Any] = ()) -> None:
        """Returns when it is told to stop, all requests ended. Raises what a step does.

        ``early``: messages that have been read already.
        """
        for message in early:
            self._take(message)
        while not self._stopped:
            for message in self._seam.receive(self._patience()):
                self._take(message)
            self._queue_arrivals()
            if self._engine.has_work and not self._stopped:
                self._turn()
        self._prompts.abort_all()

    def _patience(self) -> float | None:
        """How long to wait for a message, None: until one comes."""
        if not (self._engine.has_work or self._prompts.has_arrivals):
            return None
        return COLLECTING_SECONDS if self._collecting else 0.0

    def _take(self, message: Any) -> None:
        match message:
            case Submit():
                self._prompts.arrive(message)
            case Abort():
                self._prompts.abort(message.key)
                self._engine.record_ends(self._clock())
            case AskMetrics():
                engine = self._engine
                self._seam.send(Metrics(message.ticket, engine.metrics, engine.load()))
            case CheckIntegrity():
                self._seam.send(self._integrity(message.ticket))
            case Stop():
                self._stopped = True
            case _:
                raise TypeError(f"the server said {message!r}")

    def _queue_arrivals(self) -> None:
        until = self._clock() + QUEUEING_SECONDS
        while self._prompts.has_arrivals:
            key, refusal = self._prompts.queue_next()
            self._seam.send(Accepted(key) if refusal is None else Refused(key, refusal))
            if self._clock() > until:
                return

    def _turn(self) -> None:
        started = self._clock()
        events = self._engine.step(started)
        ended = self._clock()
        news = self._prompts.follow(events, started, ended)
        self._seam.send(self._stepped(news, started, ended))
        self._collecting = news.decode_rows + news.prefill_rows == 0

    def _stepped(self, news: News, started: float, ended: float) -> Stepped:
        scheduler = self._engine.scheduler
        return Stepped(
            started=started,
            ended=ended,
            decode_rows=news.decode_rows,
            prefill_rows=news.prefill_rows,
            num_running=len(scheduler.running),
            num_waiting=scheduler.num_waiting,
            begun=tuple(news.begun),
            progress=tuple(news.progress),
            chunks=tuple(news.chunks),
            outputs=tuple(news.outputs),
            failures=tuple(news.failures),
            prompt_logprobs=tuple(news.prompt_logprobs),
        )

    def _integrity(self, ticket: int) -> Integrity:
        problem = None
        try:
            self._engine.check_integrity()
            self._prompts.check_integrity()
        except AssertionError as error:
            problem = str(error) or "requests are not where their state says"
        kv = self._engine.load().kv
        return Integrity(
            ticket=ticket,
            free_blocks=kv.num_blocks - kv.held_blocks - kv.cached_blocks,
            held_blocks=kv.held_blocks,
            cached_blocks=kv.cached_blocks,
            num_blocks=kv.num_blocks,
            open_prompts=len(self._prompts),
            problem=problem,
        )
