"""Turns a schedule into arrays, calls the executor once, and draws the tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from farthing.engine.draws import Draw
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule, ScheduledRows
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.step import SequenceRows, step_batch
from farthing.sampling.grammar.matcher import MaskFiller
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.sampler import NOT_FINITE, NOTHING_ALLOWED, SampledRow, Sampler


class Runner:
    """Runs steps of one model."""

    def __init__(self, executor: NativeExecutor, kv: KvCache) -> None:
        self.executor = executor
        self.kv = kv
        self.num_blocks = kv.num_blocks
        self._sampler = Sampler(executor.threads)
        self._masks = MaskFiller(executor.num_threads)

    def close(self) -> None:
        """Lets go of weights, KV cache and threads; no step may follow. Twice is once."""
        for name in ("executor", "kv", "_sampler", "_masks"):
            self.__dict__.pop(name, None)

    def run(self, step: Schedule) -> dict[str, Draw]:
        """Copies blocks, computes rows; returns what their logits gave by request id."""
        if step.copies:
            self.kv.copy_blocks(step.copies)
        schedule = step.rows
        of_argmax = [_takes_argmax(rows) for rows in schedule]
        batch = step_batch(list(map(_sequence_rows, schedule, of_argmax)))
        output = self.executor.run(batch, self.kv)
        draws = {
            rows.request.request_id: Draw(rows.request)
            for rows in schedule
            if rows.num_logits and not rows.discarded
        }
        found = [rows for rows, argmax in zip(schedule, of_argmax, strict=True) if argmax]
        for rows, token in zip(found, output.argmax.tolist(), strict=True):
            if not rows.discarded:
                draws[rows.request.request_id].token = token
        of_logits = [
            rows
            for rows, argmax in zip(schedule, of_argmax, strict=True)
            if rows.num_logits and not argmax
        ]
        if of_logits:
            places = _logit_places(of_logits)
            self._draw(output.logits, of_logits, places, draws)
            self._report(output.logits, of_logits, places, draws)
        return draws

    def _draw(
        self,
        logits: NDArray[np.float32],
        schedule: Sequence[ScheduledRows],
        places: Sequence[range],
        draws: dict[str, Draw],
    ) -> None:
        sampling = [
            (rows.request, place[-1])
            for rows, place in zip(schedule, places, strict=True)
            if rows.samples
        ]
        held = [request for request, _ in sampling if request.grammar is not None]
        filled = self._masks.fill([r.grammar for r in held if r.grammar is not None])
        masks = {r.request_id: mask for r, mask in zip(held, filled, strict=True)}
        requests: list[Request] = []
        rows: list[int] = []
        for request, row in sampling:
            if request.grammar is not None and request.grammar.error is not None:
                draws[request.request_id].token = NOTHING_ALLOWED
            else:
                requests.append(request)
                rows.append(row)
        if not requests:
            return
        tokens = self._sampler.draw(
            logits, [_sampled_row(r, masks.get(r.request_id)) for r in requests], rows
        )
        for request, token in zip(requests, tokens, strict=True):
            draws[request.request_id].token = token

    def _report(
        self,
        logits: NDArray[np.float32],
        schedule: Sequence[ScheduledRows],
        places: Sequence[range],
        draws: dict[str, Draw],
    ) -> None:
        """Log probabilities of prompt tokens and of drawn ones, for those who asked."""
        asked: list[tuple[Draw, int, int, int, bool]] = []  # draw, row, token, count, of the prompt
        for rows, place in zip(schedule, places, strict=True):
            params = rows.request.params
            draw = draws[rows.request.request_id]
            for i, row in enumerate(place[: rows.prompt_logits], rows.request.num_prompt_logprobs):
                token = rows.request.prompt_token_ids[i + 1]
                asked.append((draw, row, token, params.prompt_logprobs or 0, True))
            if params.logprobs is not None and draw.token is not None and draw.token >= 0:
                asked.append((draw, place[-1], draw.token, params.logprobs, False))
        if not asked:
            return
        reports = self._sampler.logprobs(
            logits,
            [row for _, row, _, _, _ in asked],
            [token for _, _, token, _, _ in asked],
            [count for _, _, _, count, _ in asked],
        )
        for (draw, _, _, _, of_prompt), report in zip(asked, reports, strict=True):
            if report is None:
                draw.token = NOT_FINITE
            elif of_prompt:
                draw.prompt_logprobs.append(report)
            else:
                draw.logprobs = report


def _takes_argmax(rows: ScheduledRows) -> bool:
    """Whether nobody reads the logits of ``rows`` but to find the highest."""
    request = rows.request
    return rows.discarded or (
        rows.samples
        and rows.prompt_logits == 0
        and request.params.logprobs is None
        and request.grammar is None
        and _sampler(request).takes_argmax
    )


def _sequence_rows(rows: ScheduledRows, takes_argmax: bool) -> SequenceRows:
    return SequenceRows(
        tokens=rows.request.tokens(rows.start, rows.start + rows.num_tokens),
        position=rows.start,
        block_table=rows.request.block_table,
        logits=0 if takes_argmax else rows.num_logits,
        argmax=int(takes_argmax),
    )


def _logit_places(schedule: Sequence[ScheduledRows]) -> list[range]:
    """Of each entry its rows of the step's logits."""
    places = []
    end = 0
    for rows in schedule:
        places.append(range(end, end + rows.num_logits))
        end += rows.num_logits
    return places


def _sampled_row(request: Request, mask: NDArray[np.uint32] | None) -> SampledRow:
    return _sampler(request).row(request.output_token_ids, mask)


def _sampler(request: Request) -> RequestSampler:
    assert request.sampler is not None, "made by Engine.make_request"
    return request.sampler
