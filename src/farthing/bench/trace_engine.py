"""A trace played on an engine of this process, in real time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from farthing.bench.records import Record
from farthing.bench.trace import RequestTimes, TraceRequest
from farthing.bench.trace_rounds import System
from farthing.engine.batching import BatchingName
from farthing.engine.engine import Engine, EngineConfig, KvName
from farthing.engine.loop import EngineLoop
from farthing.engine.output_processor import OutputProcessor
from farthing.errors import InvalidParameterError
from farthing.sampling.params import SamplingParams

if TYPE_CHECKING:
    from farthing.llm import LLM


POLICIES: dict[str, tuple[BatchingName, KvName]] = {
    "continuous": ("continuous", "paged"),
    "static": ("static", "paged"),
    "contiguous": ("continuous", "contiguous"),
}
"""Batching and cache of the systems that are compared."""

COLLECT_SECONDS = 1.0
"""A static batch that is not full begins when nobody has come for so long."""


def system_names(text: str, *others: str) -> list[str]:
    """The policies, and ``others``, that ``text`` names.

    Raises :class:`InvalidParameterError` for a name that is neither.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (*POLICIES, *others):
            raise InvalidParameterError(
                f"--systems {text!r}: {name!r} must be one of {', '.join((*POLICIES, *others))}"
            )
    return list(dict.fromkeys(names))


def engine_systems(
    llm: LLM, names: Sequence[str], slots: int, longest: int, max_prefill_chunk: int | None
) -> list[System]:
    """An engine over the model of ``llm`` for each policy; sequences of up to ``longest`` tokens.

    Raises :class:`InsufficientMemoryError` for contiguous slots that do not fit.
    """

    def system(name: str) -> System:
        batching, kv = POLICIES[name]
        scheduler = replace(
            llm.engine.config.scheduler,
            max_num_seqs=slots,
            batching=batching,
            max_prefill_chunk=max_prefill_chunk,
            collect_seconds=COLLECT_SECONDS,
        )
        config = replace(llm.engine.config, max_model_len=longest, kv=kv, scheduler=scheduler)

        def play(
            trace: Sequence[TraceRequest], arrivals: Sequence[float]
        ) -> tuple[list[RequestTimes], Record]:
            return play_on_engine(llm, config, trace, arrivals)

        return System(name, play, {"max_prefill_chunk": max_prefill_chunk})

    return [system(name) for name in names]


def play_on_engine(
    llm: LLM, config: EngineConfig, trace: Sequence[TraceRequest], arrivals: Sequence[float]
) -> tuple[list[RequestTimes], Record]:
    """Plays ``trace`` on a new engine over the model of ``llm``, whose own is idle meanwhile.

    A request arrives at its time even if the engine is in the middle of a step then. Of the engine
    it says steps, preemptions, tokens found in the prefix cache, and the share of the reserved room
    of the cache that held no token.
    """
    old = llm.engine
    if old.prefix_cache is not None:
        old.prefix_cache.clear()  # its blocks will be written
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
    began = time.perf_counter()
    while due or engine.has_work:
        now = time.perf_counter() - began
        while due and arrivals[due[0]] <= now:
            loop.submit([prepared[due.pop(0)]])
        if engine.has_work:
            loop.step()
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
    return times, {
        "steps": metrics.steps,
        "preemptions": metrics.preemptions,
        "cached_tokens": metrics.cached_tokens,
        "kv_waste": metrics.kv_waste,
    }
