"""Requests in flight: taken as places come free, given back as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from farthing.engine.loop import EngineLoop
from farthing.engine.output_processor import OutputProcessor, request_output
from farthing.engine.outputs import RequestOutput
from farthing.sampling.params import SamplingParams

K = TypeVar("K")
P = TypeVar("P")


def run_in_flight(
    loop: EngineLoop,
    requests: Iterable[tuple[K, P, SamplingParams]],
    most: int,
    *,
    prepare: Callable[[P, SamplingParams], list[OutputProcessor]],
    on_pass: Callable[[int], None] | None,
) -> Iterator[tuple[K, RequestOutput | Exception]]:
    """See :meth:`farthing.llm.LLM.run`. ``prepare`` raises for a prompt that is refused."""
    source = iter(requests)
    flying: list[tuple[K, list[OutputProcessor]]] = []
    more = True
    try:
        while more or flying:
            while more and sum(len(choices) for _, choices in flying) < most:
                try:
                    key, prompt, params = next(source)
                except StopIteration:
                    more = False
                    break
                try:
                    choices = prepare(prompt, params)
                    loop.submit(choices)
                except Exception as error:  # its own result; its neighbours go on
                    yield key, error
                else:
                    flying.append((key, choices))
            if not flying:
                continue
            if not any(_finished(choices) for _, choices in flying):  # another thread's passes
                loop.step()
            done: list[tuple[K, list[OutputProcessor]]] = []
            left: list[tuple[K, list[OutputProcessor]]] = []
            for entry in flying:  # each is asked once: another thread's pass may end it meanwhile
                (done if _finished(entry[1]) else left).append(entry)
            for _, choices in done:
                loop.forget(choices)
            flying = left
            for key, choices in done:
                yield key, request_output(choices)
            if on_pass is not None:
                on_pass(sum(len(c.request.output_token_ids) for _, cs in flying for c in cs))
    finally:
        loop.forget([processor for _, choices in flying for processor in choices])


def _finished(choices: list[OutputProcessor]) -> bool:
    return all(processor.request.finished for processor in choices)
