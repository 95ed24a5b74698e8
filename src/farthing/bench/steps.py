"""Whole passes of a target, straight through the executor and through ``LLM``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from farthing.bench.cache_fill import fill_cache
from farthing.bench.rounds import Case
from farthing.bench.target import Target
from farthing.program.native import InstructionTiming
from farthing.program.step import BLOCK_TOKENS, SequenceRows, StepBatch, step_batch
from farthing.program.work import Work, attention_work, linear_work
from farthing.sampling.params import SamplingParams

PROMPT_TOKENS = 16
"""Of each request through ``LLM``: 32 of them are one pass, after which all decode together."""

NEW_TOKENS = 24
"""That each request decodes after its first."""


def prefill_cases(target: Target, tokens: int) -> list[Case]:
    """One prompt of ``tokens`` tokens, in as many passes as serving takes, and its greedy token."""
    size = target.executor.max_rows
    blocks = range(-(-tokens // BLOCK_TOKENS))
    batches = [
        step_batch(
            [
                SequenceRows(
                    [_token(target, i) for i in range(start, min(start + size, tokens))],
                    start,
                    blocks,
                    logits=0,
                    argmax=int(start + size >= tokens),
                )
            ]
        )
        for start in range(0, tokens, size)
    ]
    return _pass_cases(target, f"prompt of {tokens}", batches, {"prompt_tokens": tokens})


def decode_cases(target: Target, sequences: int, context: int) -> list[Case]:
    """One greedy token for each of ``sequences`` sequences that have ``context`` tokens cached."""
    blocks = -(-(context + 1) // BLOCK_TOKENS)
    rows = [
        SequenceRows(
            [_token(target, i)], context, range(i * blocks, (i + 1) * blocks), logits=0, argmax=1
        )
        for i in range(sequences)
    ]
    name = f"batch {sequences}, context {context}"
    return _pass_cases(target, name, [step_batch(rows)], {"batch": sequences, "context": context})


def llm_case(target: Target, sequences: int) -> Case:
    """A token for each of ``sequences`` greedy requests through ``LLM``, sampling and text too.

    The work is that of the pass in the middle of the answers.
    """
    llm = target.llm
    assert llm is not None, "a shape has no tokenizer"
    middle = PROMPT_TOKENS + NEW_TOKENS // 2
    (whole, *_) = decode_cases(target, sequences, middle)
    prompts = [
        [_token(target, i * PROMPT_TOKENS + j) for j in range(PROMPT_TOKENS)]
        for i in range(sequences)
    ]
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS + 1, ignore_eos=True)

    def run() -> float:
        outputs = llm.generate(prompts, params)
        return max(output.metrics.decode_seconds for output in outputs) / NEW_TOKENS

    settings: dict[str, object] = {
        "batch": sequences,
        "prompt_tokens": PROMPT_TOKENS,
        "new_tokens": NEW_TOKENS,
    }
    return Case(f"batch {sequences}", "llm", whole.work, sequences, run, settings)


def prepare(target: Target) -> None:
    """Makes the cache what it is in use: memory that was written."""
    fill_cache(target.program, target.kv, target.executor.num_threads)


def _pass_cases(
    target: Target, name: str, batches: Sequence[StepBatch], settings: dict[str, object]
) -> list[Case]:
    """The passes as a whole, and of them the matrix products and the attention alone."""
    linear = attention = Work()
    for batch in batches:
        linear += linear_work(target.program, target.weights, batch)
        attention += attention_work(target.program, target.kv, batch)
    tokens = sum(batch.num_rows for batch in batches)
    whole = Case(name, "pass", linear + attention, tokens, _timed(target, batches), settings)
    products = Case(name, "linear", linear, tokens, _profiled(target, batches), settings)
    return [whole, products]


def _timed(target: Target, batches: Sequence[StepBatch]) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        for batch in batches:
            target.executor.run(batch, target.kv)
        return time.perf_counter() - start

    return run


def _profiled(target: Target, batches: Sequence[StepBatch]) -> Callable[[], float]:
    """Seconds of the instructions that read weights."""

    def run() -> float:
        executor = target.executor
        executor.set_profiling(True)
        try:
            seconds = 0.0
            for batch in batches:
                executor.run(batch, target.kv)
                seconds += sum(t.seconds for t in executor.profile() if multiplies(t))
            return seconds
        finally:
            executor.set_profiling(False)

    return run


def multiplies(timing: InstructionTiming) -> bool:
    """Whether an instruction of a profile is a matrix product; experts' bytes are not in it."""
    return timing.weight_bytes > 0 or timing.name == "expert_linear"


def _token(target: Target, number: int) -> int:
    return 7919 * number % target.vocab_size
