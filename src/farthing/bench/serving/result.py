"""A run's result: the JSON that vLLM's tool writes, and more under ``farthing``."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farthing.bench.serving.metrics import METRICS, Metrics, Timed
from farthing.bench.serving.settings import ServeSettings
from farthing.errors import InvalidParameterError

DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
"""Keys of single requests that only ``--save-detailed`` keeps, as with vLLM's tool."""

_KEYS = """
date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness
max_concurrency ramp_up_strategy ramp_up_start_rps ramp_up_end_rps duration completed failed
total_input_tokens total_output_tokens request_throughput request_goodput output_throughput
total_token_throughput input_lens output_lens ttfts itls latencies start_times queue_times
generated_texts errors max_output_tokens_per_s max_concurrent_requests farthing
"""
RESULT_KEYS = frozenset(_KEYS.split())
"""Keys of a result, but for those of the metrics and of speculation."""

_FIGURE = re.compile(rf"(mean|median|std|p[0-9.]+)_({'|'.join(METRICS)})_ms")


@dataclass(frozen=True, slots=True)
class ServeResult:
    """A run that is over, or was interrupted."""

    settings: ServeSettings
    model: str
    tokenizer: str | None  # who counted tokens
    date: str  # local, 20260131-235959
    began: float  # of time.perf_counter
    duration: float  # seconds
    requests: list[Timed]  # those that were answered or failed
    metrics: Metrics
    planned: int  # requests there were to send
    interrupted: bool
    speculation: Mapping[str, Any]
    extra: Mapping[str, Any]  # what Farthing says beyond vLLM's tool

    @property
    def errors(self) -> list[tuple[str, int]]:
        """Messages of failures and how often each came, the most frequent first."""
        failed = [r.answer.error for r in self.requests if not r.answer.success]
        return Counter(failed).most_common()

    @property
    def text_differs(self) -> bool:
        """Whether a check of texts has found a difference."""
        return bool((self.extra.get("check_text") or {}).get("different"))

    def as_json(
        self, *, detailed: bool, metadata: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """All of it; ``detailed``: with :data:`DETAILS`. ``metadata`` stands beside the facts."""
        arrivals, metrics = self.settings.arrivals, self.metrics
        body: dict[str, Any] = {
            "date": self.date,
            "endpoint_type": self.settings.backend,
            "backend": self.settings.backend,
            "label": self.settings.label,
            "model_id": self.model,
            "tokenizer_id": self.tokenizer,
            "num_prompts": self.planned,
            **(metadata or {}),
            "request_rate": "inf" if math.isinf(arrivals.rate) else arrivals.rate,
            "burstiness": "inf" if math.isinf(arrivals.burstiness) else arrivals.burstiness,
            "max_concurrency": self.settings.max_concurrency,
        }
        if arrivals.ramp_up is not None:
            body |= {
                "ramp_up_strategy": arrivals.ramp_up,
                "ramp_up_start_rps": arrivals.start_rate,
                "ramp_up_end_rps": arrivals.end_rate,
            }
        body |= {
            "duration": self.duration,
            "completed": metrics.completed,
            "failed": metrics.failed,
            "total_input_tokens": metrics.total_input_tokens,
            "total_output_tokens": metrics.total_output_tokens,
            "request_throughput": metrics.request_throughput,
            "request_goodput": metrics.request_goodput,
            "output_throughput": metrics.output_throughput,
            "total_token_throughput": metrics.total_token_throughput,
            **self._of_requests(detailed),
            "max_output_tokens_per_s": metrics.max_output_tokens_per_s,
            "max_concurrent_requests": metrics.max_concurrent_requests,
            **self.speculation,
        }
        for name, each in metrics.statistics.items():
            body |= {
                f"mean_{name}_ms": each.mean,
                f"median_{name}_ms": each.median,
                f"std_{name}_ms": each.std,
                **{f"p{p:g}_{name}_ms": value for p, value in each.percentiles.items()},
            }
        return body | {"farthing": dict(self.extra)}

    def _of_requests(self, detailed: bool) -> dict[str, Any]:
        answers = [request.answer for request in self.requests]
        whole = {
            "input_lens": [request.input_tokens for request in self.requests],
            "output_lens": [request.output_tokens for request in self.requests],
            "ttfts": [answer.ttft for answer in answers],
            "itls": [answer.itl for answer in answers],
            "latencies": [answer.latency for answer in answers],
            "start_times": [answer.started - self.began for answer in answers],
            "queue_times": [request.queue_time for request in self.requests],
            "generated_texts": [answer.text for answer in answers],
            "errors": [answer.error for answer in answers],
        }
        return {key: value for key, value in whole.items() if detailed or key not in DETAILS}


def result_path(
    settings: ServeSettings, model: str, date: str, directory: Path | None, name: str | None
) -> Path:
    """Where a result goes: a name that says what was measured, unless one is given."""
    if name is None:
        arrivals = settings.arrivals
        rate = f"{arrivals.rate:g}qps"
        if arrivals.ramp_up is not None:
            rate = f"ramp-up-{arrivals.ramp_up}-{arrivals.start_rate:g}qps-{arrivals.end_rate:g}qps"
        if settings.max_concurrency is not None:
            rate += f"-concurrency{settings.max_concurrency}"
        short = model.rstrip("/").rsplit("/", 1)[-1]
        name = f"{settings.label or settings.backend}-{rate}-{short}-{date}.json"
    return (directory or Path()) / name


def save(body: Mapping[str, Any], path: Path, *, append: bool) -> None:
    """Writes ``body`` as one line of JSON, behind what is there or instead of it.

    The file is whole or not there. Raises ``OSError`` naming it.
    """
    line = json.dumps(body, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if append and path.exists() else ""
    if before and not before.endswith("\n"):
        before += "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(before + line, encoding="utf-8", errors="surrogatepass")
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises :class:`InvalidParameterError` for a name that a result has of its own."""
    for name in metadata:
        if name in RESULT_KEYS or _FIGURE.fullmatch(name) or name.startswith("spec_decode_"):
            raise InvalidParameterError(f"--metadata {name}: a result has such a key of its own")


def local_date() -> str:
    """Now, as results have it."""
    return time.strftime("%Y%m%d-%H%M%S")
