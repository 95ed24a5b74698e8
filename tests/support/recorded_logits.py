"""A runner that keeps the bits of all logits, and fills memory that nobody owns with NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from farthing.engine.block_pool import BLOCK_TOKENS, blocks_for
from farthing.engine.draws import Draw
from farthing.engine.prefix_cache import PrefixCache
from farthing.engine.runner import Runner
from farthing.engine.schedule import Schedule
from farthing.engine.scheduler import Scheduler
from farthing.program.native import KvCache
from farthing.program.step import StepBatch, StepOutput

Rows = dict[int, bytes]
"""Of the logits after the token at each position, a digest."""

POISON = 0xFF
"""Bytes of it are NaN in fp16 and fp32, and in the scales of int8."""


class Executor(Protocol):
    """What plays a pass: the native executor, or one that does it otherwise."""

    @property
    def threads(self) -> Any: ...

    @property
    def num_threads(self) -> int: ...

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput: ...


class Recorder:
    """Stands before an executor and asks it for logits that nobody else wants.

    The pass is otherwise the one that was asked for: a row of which only the greedy token is wanted
    is in it a second time, with its logits, and the token must be theirs. ``every_row``: also rows
    inside a prompt. A position that is computed again must give the same bits again.
    """

    def __init__(self, executor: Executor, *, every_row: bool) -> None:
        self.executor = executor
        self.every_row = every_row
        self.rows: dict[str, Rows] = {}  # by request id
        self.names: list[str] = []  # of the sequences of the next pass; "": of no interest
        self.before: Callable[[], None] = lambda: None
        self.passes = 0

    @property
    def threads(self) -> Any:
        return self.executor.threads

    @property
    def num_threads(self) -> int:
        return self.executor.num_threads

    def run(self, batch: StepBatch, kv: KvCache) -> StepOutput:
        """One pass, the logits asked for and no others handed back."""
        self.before()
        self.passes += 1
        asked = len(batch.logit_rows)
        more = np.arange(batch.num_rows) if self.every_row else batch.argmax_rows
        rows = np.concatenate([batch.logit_rows, more]).astype(np.int32)
        output = self.executor.run(replace(batch, logit_rows=rows), kv)
        place = {row: i for i, row in enumerate(rows.tolist())}
        for row, token in zip(batch.argmax_rows.tolist(), output.argmax.tolist(), strict=True):
            logits = output.logits[place[row]]
            assert token == (int(logits.argmax()) if np.isfinite(logits).all() else -1)
        owners = np.searchsorted(batch.row_offsets, rows, side="right") - 1
        for i, (row, owner) in enumerate(zip(rows.tolist(), owners.tolist(), strict=True)):
            if name := self.names[owner]:
                self._keep(name, int(batch.positions[row]), output.logits[i])
        return replace(output, logits=output.logits[:asked])

    def _keep(self, name: str, position: int, logits: NDArray[np.floating]) -> None:
        digest = blake2b(logits.tobytes(), digest_size=16).digest()
        known = self.rows.setdefault(name, {}).setdefault(position, digest)
        assert known == digest, f"{name}: other logits at {position} when computed again"


class RecordingRunner(Runner):
    """The real runner, its executor behind a :class:`Recorder`.

    ``fail``: is told which pass comes, counted from 0, and whether it is over; raises to break it
    off. ``drop_copies``: the inverse of copying a shared block before it is written.
    """

    executor: Recorder  # type: ignore[assignment]

    def __init__(self, executor: Executor, kv: KvCache, *, every_row: bool) -> None:
        super().__init__(Recorder(executor, every_row=every_row), kv)  # type: ignore[arg-type]
        self.num_copies = 0
        self.num_rows = 0
        self.drop_copies = False
        self.fail: Callable[[int, bool], None] = lambda number, over: None
        self.last = Schedule()
        self._number = 0

    def run(self, step: Schedule) -> dict[str, Draw]:
        """One step, broken off where ``fail`` says so."""
        number, self._number = self._number, self._number + 1
        self.fail(number, False)
        self.num_copies += len(step.copies)
        if self.drop_copies:
            step = replace(step, copies=[])
        self.executor.names = [
            "" if rows.discarded else rows.request.request_id for rows in step.rows
        ]
        self.num_rows += sum(rows.num_tokens for rows in step.rows)
        self.last = step
        draws = super().run(step)
        self.fail(number, True)
        return draws

    def poison_for(self, scheduler: Scheduler, prefix_cache: PrefixCache | None) -> None:
        """From now on fills every block that holds no token of anybody, before each pass.

        A block is filled after its last owner has gone and the step's copies are made, so that
        whatever is read of it that was not written since is NaN.
        """
        filled: set[int] = set()

        def fill() -> None:
            filled.difference_update(target for _, target in self.last.copies)
            valid = {entry.block for entry in prefix_cache.entries()} if prefix_cache else set()
            for request in scheduler.holders():
                valid.update(request.block_table[: blocks_for(request.num_computed_tokens)])
            for block in set(range(self.num_blocks)) - valid - filled:
                self.kv.block(block)[:] = POISON
                filled.add(block)
            for rows in self.last.rows:
                first, end = rows.start // BLOCK_TOKENS, rows.start + rows.num_tokens
                filled.difference_update(rows.request.block_table[first : blocks_for(end)])

        self.executor.before = fill
