"""What metrics tell of admission."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from farthing.engine.metrics import LATENCY_BOUNDS, Histogram


class Refusal(Enum):
    """Why a request was not let in."""

    QUEUE_REQUESTS = "queue_requests"
    QUEUE_TOKENS = "queue_tokens"
    PROMISED = "promised"  # the free places are needed by those who were told to come
    RATE = "rate"
    CONCURRENCY = "concurrency"
    TOO_LARGE = "too_large"  # more tokens than may ever wait


@dataclass(slots=True)
class AdmissionNumbers:
    """What waits now; the rest since the start. Seconds."""

    waiting_requests: int = 0
    waiting_tokens: int = 0
    refusals: Counter[Refusal] = field(default_factory=Counter)
    promised: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS))  # waits
