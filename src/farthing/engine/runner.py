"""Turns a schedule into arrays, calls the executor once, and draws the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farthing.engine.request import Request
from farthing.engine.scheduler import ScheduledRows
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.sampling.sampler import SampledRow, Sampler, TokenLogprob, top_logprobs


@dataclass(frozen=True, slots=True)
class Draw:
    """The token one request got in a step; negative, as ``Sampler.draw`` says, if it got none."""

    request: Request
    token: int
    logprobs: list[TokenLogprob] | None


class Runner:
    """Runs steps of one model."""

    def __init__(self, executor: NativeExecutor, kv: KvCache) -> None:
        self.executor = executor
        self.kv = kv
        self._sampler = Sampler(executor.threads)

    def run(self, schedule: Sequence[ScheduledRows]) -> dict[str, Draw]:
        """Computes the scheduled rows; returns the draws by request id."""
        batch = step_batch([_sequence_rows(rows) for rows in schedule])
        logits = self.executor.run(batch, self.kv).logits
        sampling = [rows.request for rows in schedule if rows.samples]
        if not sampling:
            return {}
        tokens = self._sampler.draw(logits, [_sampled_row(request) for request in sampling])
        draws = {}
        for row, request, token in zip(logits, sampling, tokens, strict=True):
            count = request.params.logprobs
            logprobs = None if count is None or token < 0 else top_logprobs(row, token, count)
            draws[request.request_id] = Draw(request, token, logprobs)
        return draws


def _sequence_rows(rows: ScheduledRows) -> SequenceRows:
    return SequenceRows(
        tokens=rows.request.tokens(rows.start, rows.start + rows.num_tokens),
        position=rows.start,
        block_table=rows.request.block_table,
        logits=1 if rows.samples else 0,
    )


def _sampled_row(request: Request) -> SampledRow:
    temperature = 0.0 if request.params.greedy else request.params.temperature
    return SampledRow(temperature, request.seed, request.num_tokens)
