"""In the place of a model: computes histories through block tables and checks what it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.draws import Draw
from farthing.engine.engine import Engine
from farthing.engine.paged_kv import PagedKv
from farthing.engine.request import Request
from farthing.engine.schedule import Schedule, ScheduledRows
from farthing.sampling.sampler import NOT_FINITE, TokenLogprob
from simulation.checking_store import CheckingStore
from simulation.history import Solo, begin, extend, next_token
from simulation.schedule_rules import check_writes

BEFORE_COPIES = -1
"""In the place of a number of rows: not even blocks are copied."""


class StepFailedError(Exception):
    """What a runner raises that breaks off."""


class CheckingRunner:
    """A :class:`ModelRunner` over a :class:`CheckingStore`.

    ``solos``: what each request's own run is. ``failing``: requests whose next draw fails.
    ``breaks_after``: rows after which the next pass breaks off, or :data:`BEFORE_COPIES`. ``last``:
    the schedule that it was given last.
    """

    def __init__(self, num_blocks: int, check_schedule: Callable[[Schedule], None]) -> None:
        self.store = CheckingStore(num_blocks)
        self.engine: Engine | None = None
        self.solos: dict[str, Solo] = {}
        self.failing: set[str] = set()
        self.breaks_after: int | None = None
        self.last: Schedule | None = None
        self._check_schedule = check_schedule

    @property
    def breaks(self) -> bool:
        """Whether the next pass breaks off."""
        return self.breaks_after is not None

    @property
    def num_blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.store.num_blocks

    def run(self, schedule: Schedule) -> dict[str, Draw]:
        """Copies blocks, stores all rows, then reads as attention does; returns the draws."""
        self.last = schedule
        self._check_schedule(schedule)
        assert self.engine is not None
        tables = [request.block_table for request in self.engine.scheduler.holders()]
        named = Counter(chain.from_iterable(tables))
        kept = self.engine.kv.pool.is_kept if isinstance(self.engine.kv, PagedKv) else _never
        breaks_after, self.breaks_after = self.breaks_after, None
        if breaks_after == BEFORE_COPIES:
            raise StepFailedError
        for source, target in schedule.copies:
            assert named[target] == 1, f"block {target}, copied to, is in {named[target]} tables"
            assert not kept(target), f"block {target}, copied to, is kept"
            self.store.copy(source, target)
        claimed: set[int] = set()
        for rows in schedule.rows[:breaks_after]:
            check_writes(rows, named, kept, claimed)
            self._write(rows)
        if breaks_after is not None:
            raise StepFailedError
        for rows in schedule.rows:
            request = rows.request
            end = rows.start + rows.num_tokens
            name = request.request_id
            self.store.check_read(request.block_table, self.solos[name].chain, end, name)
        return {
            rows.request.request_id: self._draw(rows)
            for rows in schedule.rows
            if rows.num_logits and not rows.discarded
        }

    def _write(self, rows: ScheduledRows) -> None:
        request, start = rows.request, rows.start
        table = request.block_table
        before = self.store.at(table, start - 1) if start else begin(request.salt)
        values = extend(before, request.tokens(start, start + rows.num_tokens))
        self.store.write(table, start, values, request.request_id)

    def _draw(self, rows: ScheduledRows) -> Draw:
        request = rows.request
        draw = Draw(request)
        if rows.samples and request.request_id in self.failing:
            self.failing.discard(request.request_id)
            draw.token = NOT_FINITE
            return draw
        end = rows.start + rows.num_tokens
        first = end - rows.num_logits
        draw.prompt_logprobs = [
            prompt_logprobs(self.store.at(request.block_table, first + i))
            for i in range(rows.prompt_logits)
        ]
        if rows.samples:
            history = self.store.at(request.block_table, end - 1)
            draw.token = next_token(history, request.seed, request.choice)
        return draw

    def wrote(self, request: Request, block: int) -> bool:
        """Whether ``request`` computed anything that is in ``block``."""
        return request.request_id in self.store.writers(block)


def prompt_logprobs(history: int) -> list[TokenLogprob]:
    """What the logits after ``history`` say of the prompt's next token."""
    return [TokenLogprob(history % BLOCK_TOKENS, float(history), 1)]


def _never(block: int) -> bool:
    return False
