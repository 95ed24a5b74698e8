"""One generating request and how it went."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from farthing.engine.metrics import RequestMetrics
from farthing.engine.outputs import RequestOutput, StreamChunk
from farthing.openai_protocol.errors import RequestError
from farthing.sampling.params import SamplingParams

CLIENT_LEFT = 499
"""The status of a request whose client went before it was answered; nobody is sent it."""


@dataclass(slots=True)
class RequestRecord:
    """What metrics, logs and traces say of a request: never its text.

    A route makes one as soon as it has a request, enters what it learns, and gives it to
    :meth:`Observation.finished <farthing.server.observation.observation.Observation.finished>`
    however the request ends. Seconds are of the monotonic clock.
    """

    # Known at once.
    request_id: str
    endpoint: str  # the template of its route
    principal: str = ""  # the name of the key, never the key
    traceparent: str | None = None  # headers of the W3C
    tracestate: str | None = None
    started_at: float = field(default_factory=time.monotonic)

    # From its body.
    model: str = ""
    stream: bool = False
    num_prompts: int = 0
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None

    # As it goes on.
    status: int | None = None  # that was answered
    finish_reasons: list[str] = field(default_factory=list)  # of its choices, as they ended
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    queue_seconds: float = 0.0  # the longest of its prompts'
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # the longest of its choices'
    first_token_at: float | None = None
    ended_at: float | None = None
    error_type: str | None = None
    error_code: str | None = None

    @classmethod
    def of(
        cls, *, request_id: str, endpoint: str, principal: str, headers: Mapping[str, str]
    ) -> RequestRecord:
        """Of a request that has just come; of its headers only those of the trace are read."""
        return cls(
            request_id=request_id,
            endpoint=endpoint,
            principal=principal,
            traceparent=headers.get("traceparent"),
            tracestate=headers.get("tracestate"),
        )

    def asks(self, params: SamplingParams, *, model: str, stream: bool, num_prompts: int) -> None:
        """Enters what the body wants."""
        self.model = model
        self.stream = stream
        self.num_prompts = num_prompts
        self.n = params.n
        self.max_tokens = params.max_tokens
        self.temperature = params.temperature
        self.top_p = params.top_p

    def answered(self, status: int = 200) -> None:
        """The status has been sent. What fails later does not change it."""
        self.status = status

    def first_token(self) -> None:
        """A token has come. All but the first call do nothing."""
        if self.first_token_at is None:
            self.first_token_at = time.monotonic()

    def chunk_ended(self, chunk: StreamChunk) -> None:
        """Enters the last chunk of a choice that is streamed; others are nothing to it."""
        if chunk.finish_reason is None:
            return
        self.finish_reasons.append(chunk.finish_reason)
        if chunk.metrics is not None:
            self._add(chunk.metrics, with_prompt=chunk.index == 0)

    def output_ended(self, output: RequestOutput) -> None:
        """Enters the whole result of a prompt that is not streamed."""
        self.finish_reasons += [choice.finish_reason or "abort" for choice in output.outputs]
        self._add(output.metrics, with_prompt=True)

    def failed(self, error: RequestError) -> None:
        """It is refused, or ends in an error."""
        self.error_type, self.error_code = error.type, error.code
        if self.status is None:
            self.status = error.status

    def left(self) -> None:
        """Its client has gone before the end."""
        self.error_type = self.error_code = "client_disconnected"
        if self.status is None:
            self.status = CLIENT_LEFT

    @property
    def knows_body(self) -> bool:
        """Whether the body was read and understood: :meth:`asks` has been called."""
        return self.num_prompts > 0

    @property
    def knows_answer(self) -> bool:
        """Whether a choice has ended, which is when the engine tells what it has taken."""
        return bool(self.finish_reasons)

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from when it came; None without a token."""
        if self.first_token_at is not None:
            return self.first_token_at - self.started_at
        if self.completion_tokens:
            return self.queue_seconds + self.prefill_seconds
        return None

    @property
    def seconds(self) -> float:
        """From when it came to its end, or until now."""
        return (time.monotonic() if self.ended_at is None else self.ended_at) - self.started_at

    @property
    def outcome(self) -> str:
        """How it ended: ``ok``, ``refused`` (4xx, 503), ``left`` (by its client) or ``failed``."""
        if self.error_type is None:
            return "failed" if "error" in self.finish_reasons else "ok"
        if self.error_type == "client_disconnected":
            return "left"
        status = self.status or 500
        return "refused" if 400 <= status < 500 or status == 503 else "failed"

    def as_fields(self) -> dict[str, object]:
        """All that is known, flat and plain, for a log line."""
        first = self.time_to_first_token
        asked, ran = self.knows_body, self.knows_answer
        fields: dict[str, object] = {
            "request_id": self.request_id,
            "endpoint": self.endpoint,
            "key_name": self.principal,
            "model": self.model,
            "stream": self.stream if asked else None,
            "outcome": self.outcome,
            "status": self.status,
            "finish_reasons": list(self.finish_reasons),
            "prompts": self.num_prompts if asked else None,
            "n": self.n if asked else None,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "prompt_tokens": self.prompt_tokens if ran else None,
            "cached_tokens": self.cached_tokens if ran else None,
            "completion_tokens": self.completion_tokens if ran else None,
            "preemptions": self.preemptions if ran else None,
            "queue_seconds": round(self.queue_seconds, 6) if ran else None,
            "prefill_seconds": round(self.prefill_seconds, 6) if ran else None,
            "decode_seconds": round(self.decode_seconds, 6) if ran else None,
            "time_to_first_token": None if first is None else round(first, 6),
            "seconds": round(self.seconds, 6),
            "error_type": self.error_type,
            "error_code": self.error_code,
        }
        return {name: value for name, value in fields.items() if value not in (None, "", [])}

    def _add(self, metrics: RequestMetrics, *, with_prompt: bool) -> None:
        """Adds a choice's counts; its prompt's only once for all the choices of it."""
        if with_prompt:
            self.prompt_tokens += metrics.prompt_tokens
            self.cached_tokens += metrics.cached_tokens
        self.completion_tokens += metrics.completion_tokens
        self.preemptions += metrics.preemptions
        self.queue_seconds = max(self.queue_seconds, metrics.queue_seconds)
        self.prefill_seconds = max(self.prefill_seconds, metrics.prefill_seconds)
        self.decode_seconds = max(self.decode_seconds, metrics.decode_seconds)
