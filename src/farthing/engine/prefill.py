"""How the rows that a step has for prompts are divided among them."""

from __future__ import annotations

from collections.abc import Sequence

from farthing.engine.kv_manager import KvManager
from farthing.engine.request import Request
from farthing.engine.schedule import ScheduledRows, first_prompt_logit, next_rows

MAX_PROMPT_LOGITS = 64
"""Prompt rows of a step whose logits are kept: each has as many floats as the vocabulary."""


def divide_prefill(kv: KvManager, reading: Sequence[Request], budget: int) -> list[ScheduledRows]:
    """At most ``budget`` rows of the prompts in ``reading``, which stand by age.

    The shortest come first, so that a short prompt does not wait for a long one, but the oldest
    gets half of the rows at least, so that it gets on. A prompt whose next block another one
    computes in this step waits, and finds it in the next.
    """
    oldest = reading[0]
    for request in reading:
        _take_computed(kv, request)
    least = min(oldest.num_remaining_tokens, (budget + 1) // 2)
    left = budget - least
    logits = MAX_PROMPT_LOGITS
    kept_logits = min(max(oldest.wanted_prompt_logprobs, 0), MAX_PROMPT_LOGITS // 2)
    computing: set[bytes] = set()
    rows = []
    # Sorting is stable: of equal lengths the older comes first.
    for request in sorted(reading, key=lambda request: request.num_remaining_tokens):
        if request is oldest:
            left, least = left + least, 0
            kept_logits = 0
        if left == 0 or kv.will_find(request, computing):
            continue
        count = min(request.num_remaining_tokens, left)
        count = _limited_by_logits(request, count, logits - kept_logits)
        if count == 0:
            continue
        computing.update(kv.digests(request, count))
        rows.append(next_rows(request, count))
        logits -= rows[-1].prompt_logits
        left -= count
    return rows


def _take_computed(kv: KvManager, request: Request) -> None:
    spared = kv.find_more(request)
    request.num_charged_tokens = max(request.num_charged_tokens, request.num_computed_tokens)
    if request.num_preemptions == 0:
        request.num_cached_tokens += spared


def _limited_by_logits(request: Request, count: int, logits: int) -> int:
    """``count`` rows, or fewer where those need logits of more prompt rows than ``logits``."""
    if request.wanted_prompt_logprobs <= logits:
        return count
    most = first_prompt_logit(request) + logits - request.num_computed_tokens
    return max(min(count, most), 0)
