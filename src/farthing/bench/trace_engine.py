"""A trace played on an engine of this process, in real time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farthing.bench.trace import RequestTimes, TraceRequest
from farthing.engine.engine import Engine, EngineConfig
from farthing.engine.loop import EngineLoop
from farthing.engine.output_processor import OutputProcessor
from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.llm import LLM


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What a trace took, request by request, and how the engine came along."""

    times: list[RequestTimes]
    steps: int
    preemptions: int
    cached_tokens: int
    kv_waste: float  # share of the reserved room that held no token, mean of the steps


def play_on_engine(
    llm: LLM, config: EngineConfig, trace: Sequence[TraceRequest], arrivals: Sequence[float]
) -> EngineRun:
    """Plays ``trace`` on a new engine over the model of ``llm``, whose own is idle meanwhile.

    A request arrives at its time even if the engine is in the middle of a step then.
    """
    old = llm.engine
    engine = Engine(
        llm.runner,
        config,
        vocabulary=old.vocabulary,
        grammars=old.grammars,
        eos_token_ids=sorted(old.eos_token_ids),
    )
    loop = EngineLoop(engine)
    prepared = []
    for request in trace:
        params = SamplingParams(
            temperature=0, max_tokens=request.max_tokens, ignore_eos=request.ignore_eos
        )
        ids = llm.tokenizer.encode(request.prompt, allow_control=True)
        (made,) = engine.make_request(ids, params)
        prepared.append(OutputProcessor(made, None, llm.tokenizer))
    due = sorted(range(len(trace)), key=lambda i: arrivals[i])
    wastes: list[float] = []
    began = time.perf_counter()
    while due or engine.has_work:
        now = time.perf_counter() - began
        while due and arrivals[due[0]] <= now:
            loop.submit([prepared[due.pop(0)]])
        if engine.has_work:
            loop.step()
            wastes.append(engine.metrics.kv.waste)
        elif due:
            time.sleep(max(arrivals[due[0]] - (time.perf_counter() - began), 0))
    times = []
    for processor, arrival in zip(prepared, arrivals, strict=True):
        made = processor.request
        assert made.first_token_at is not None
        assert made.ended_at is not None
        first, end = made.first_token_at - began, made.ended_at - began
        times.append(RequestTimes(arrival, first, end, len(made.output_token_ids)))
    metrics = engine.metrics
    return EngineRun(
        times,
        metrics.steps,
        metrics.preemptions,
        metrics.cached_tokens,
        sum(wastes) / len(wastes),
    )
