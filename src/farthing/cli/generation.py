"""Asking for one answer and streaming it, as ``run`` and ``chat`` do."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from farthing.cli.terminal import write_text
from farthing.errors import InvalidParameterError

if TYPE_CHECKING:
    from types import FrameType

    from farthing.engine.metrics import RequestMetrics
    from farthing.engine.outputs import StreamChunk
    from farthing.sampling.grammar.params import StructuredOutputsParams
    from farthing.sampling.params import SamplingParams


@dataclass(slots=True)
class Sampling:
    """How tokens are chosen and where an answer ends: those of SamplingParams that people turn.

    The defaults are greedy and leave the rest off.
    """

    temperature: float = 0.0
    max_tokens: int = 512
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0

    def params(self, structured_outputs: StructuredOutputsParams | None = None) -> SamplingParams:
        """The engine's form. Raises InvalidParameterError for values that it cannot take."""
        from farthing.sampling.params import SamplingParams

        for stop in self.stop:
            require_utf8("a stop text", stop)
        return SamplingParams(**asdict(self), structured_outputs=structured_outputs)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole or, if ``interrupted``, the beginning of an answer; ``metrics`` may then be None."""

    text: str
    finish_reason: str | None
    metrics: RequestMetrics | None
    interrupted: bool = False


def require_utf8(what: str, text: str) -> None:
    """Raises InvalidParameterError for the half characters that stand for bytes of no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParameterError(f"{what} is not UTF-8 text") from None


def read_prompt(prompt: str) -> str:
    """``prompt`` itself, or all of stdin if it is ``-``.

    Raises:
        InvalidParameterError: it is empty or not UTF-8.
    """
    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"stdin is not UTF-8 text: byte {error.start} cannot be decoded"
            raise InvalidParameterError(problem) from None
        prompt = prompt.removesuffix("\n").removesuffix("\r")
    require_utf8("the prompt", prompt)
    if not prompt.strip():
        raise InvalidParameterError("the prompt is empty; give some text, or - to read stdin")
    return prompt


class InterruptOnce:
    """While entered, the first Ctrl-C sets ``pressed``; the second raises KeyboardInterrupt.

    An answer then ends between two steps of the engine and not inside of one.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> InterruptOnce:
        self._previous = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _press(self, _signal: int, _frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


class _TokenClock:
    """Counts and times the tokens of an answer that may not live to tell its metrics."""

    def __init__(self) -> None:
        self._start = self._first = self._last = time.monotonic()
        self._tokens = 0

    def count(self, tokens: int) -> None:
        if tokens:
            self._last = time.monotonic()
            if not self._tokens:
                self._first = self._last
            self._tokens += tokens

    def metrics(self) -> RequestMetrics | None:
        """None if there was no token."""
        from farthing.engine.metrics import RequestMetrics

        if not self._tokens:
            return None
        return RequestMetrics(
            completion_tokens=self._tokens,
            prefill_seconds=self._first - self._start,
            decode_seconds=self._last - self._first,
        )


def stream_answer(
    chunks: Iterable[StreamChunk],
    *,
    interrupt: InterruptOnce | None = None,
    write: Callable[[str], None] = write_text,
) -> Answer:
    """Writes an answer as it comes and returns it whole. Closes ``chunks`` in any case.

    The metrics of an interrupted answer are counted here and do not know the prompt's length.
    """
    clock = _TokenClock()
    pieces: list[str] = []
    finish_reason: str | None = None
    metrics: RequestMetrics | None = None
    try:
        for chunk in chunks:
            clock.count(len(chunk.token_ids))
            pieces.append(chunk.text)
            write(chunk.text)
            finish_reason = chunk.finish_reason or finish_reason
            metrics = chunk.metrics or metrics
            if interrupt is not None and interrupt.pressed and finish_reason is None:
                return Answer("".join(pieces), None, metrics or clock.metrics(), interrupted=True)
    except KeyboardInterrupt:
        if interrupt is None:
            raise
        return Answer("".join(pieces), None, metrics or clock.metrics(), interrupted=True)
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    return Answer("".join(pieces), finish_reason, metrics)


def describe_metrics(metrics: RequestMetrics) -> str:
    """``"31 prompt tokens (16 cached) · prefill 85 ms · 212 tokens · 41.3 tokens/s"``."""
    cached = f" ({metrics.cached_tokens:,} cached)" if metrics.cached_tokens else ""
    parts = [
        f"{metrics.prompt_tokens:,} prompt tokens{cached}",
        f"prefill {metrics.prefill_seconds * 1000:,.0f} ms",
        f"{metrics.completion_tokens:,} tokens",
    ]
    if metrics.tokens_per_second is not None:
        parts.append(f"{metrics.tokens_per_second:,.1f} tokens/s")
    return " · ".join(parts)


def metrics_json(metrics: RequestMetrics) -> dict[str, Any]:
    """The numbers of :func:`describe_metrics`, seconds not rounded."""
    return {
        "prompt_tokens": metrics.prompt_tokens,
        "cached_tokens": metrics.cached_tokens,
        "completion_tokens": metrics.completion_tokens,
        "prefill_seconds": metrics.prefill_seconds,
        "decode_seconds": metrics.decode_seconds,
        "tokens_per_second": metrics.tokens_per_second,
    }
