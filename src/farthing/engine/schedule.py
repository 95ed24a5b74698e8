"""What a step computes, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from farthing.engine.kv_manager import BlockCopy
from farthing.engine.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledRows:
    """``num_tokens`` tokens of ``request`` from position ``start``.

    ``samples``: the last row reaches the end of the sequence, so its logits give the next token.
    ``prompt_logits``: rows, the last or those before the one that samples, whose logits give log
    probabilities of the prompt's next tokens. ``discarded``: the request has its last token; its
    row is computed as any other, and nobody takes what it gives.
    """

    request: Request
    start: int
    num_tokens: int
    samples: bool
    prompt_logits: int = 0
    discarded: bool = False

    @property
    def num_logits(self) -> int:
        """Rows at the end whose logits are needed."""
        return self.prompt_logits + self.samples


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step: blocks to copy, then rows to compute."""

    rows: list[ScheduledRows] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def count_rows(self) -> tuple[int, int]:
        """Rows that are a request's next token, and rows of prompts and of what is read again."""
        total = decoding = 0
        for rows in self.rows:
            total += rows.num_tokens
            decoding += rows.samples and rows.num_tokens == 1
        return decoding, total - decoding


def next_rows(request: Request, count: int) -> ScheduledRows:
    """The next ``count`` rows of ``request``."""
    start = request.num_computed_tokens
    end = start + count
    prompt_logits = 0
    if request.wanted_prompt_logprobs > 0:
        last = request.num_prompt_tokens - 1  # its logits are of the first generated token
        prompt_logits = max(min(end, last) - first_prompt_logit(request), 0)
    return ScheduledRows(request, start, count, end == request.num_tokens, prompt_logits)


def first_prompt_logit(request: Request) -> int:
    """Position of the first row whose logits give a log probability not known yet."""
    return max(request.num_computed_tokens, request.num_prompt_logprobs)
