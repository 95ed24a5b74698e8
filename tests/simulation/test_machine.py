"""The same world, driven by Hypothesis: what fails is shrunk to the fewest moves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from farthing.engine.block_pool import BLOCK_TOKENS
from farthing.engine.engine import EngineConfig
from farthing.engine.scheduler import SchedulerConfig
from farthing.sampling.params import SamplingParams
from simulation.checking_runner import BEFORE_COPIES
from simulation.driver import calm
from simulation.faults import one_block_too_many_is_published
from simulation.history import FIRST_WORD
from simulation.scenario import TENANTS, three_digests
from simulation.world import Submission, Watched, World

KINDS = ("abort", "stop", "preempt", "fail_draw", "break_off", "advance", "drain")
"""Moves that an example may leave out: what is rare beside them is then met alone."""

OPTIONS = ("users", "priorities", "tenants", "choices", "logprobs", "deadlines", "alike")


class EngineMachine(RuleBasedStateMachine):
    """Any moves of users, owners and machines on one engine."""

    @initialize(
        seqs=st.integers(1, 5),
        spare_rows=st.sampled_from([0, 1, 15, 16, 60]),
        chunk=st.sampled_from([None, 1, 5, 16]),
        max_preemptions=st.integers(0, 3),
        fair_share=st.booleans(),
        static=st.booleans(),
        use_cache=st.booleans(),
        contiguous=st.booleans(),
        prefix_caching=st.booleans(),
        collide=st.booleans(),
        spare_blocks=st.integers(0, 12),
        kinds=st.sets(st.sampled_from(KINDS)),
        options=st.sets(st.sampled_from(OPTIONS)),
    )
    def begin(
        self,
        seqs: int,
        spare_rows: int,
        chunk: int | None,
        max_preemptions: int,
        fair_share: bool,
        static: bool,
        use_cache: bool,
        contiguous: bool,
        prefix_caching: bool,
        collide: bool,
        spare_blocks: int,
        kinds: set[str],
        options: set[str],
    ) -> None:
        scheduler = SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=seqs + spare_rows,
            max_prefill_chunk=chunk,
            max_preemptions=max_preemptions,
            fair_share=fair_share,
            batching="static" if static else "continuous",
            use_cache=use_cache,
        )
        kv = "contiguous" if contiguous else "paged"
        config = EngineConfig(64, scheduler, kv, prefix_caching)  # type: ignore[arg-type]
        digest = three_digests if collide else None
        self.world = World(config, 64 // BLOCK_TOKENS + spare_blocks, digest)
        self.kinds, self.options = kinds, options

    def allows(self, kind: str) -> bool:
        return kind in self.kinds and bool(self.world.unfinished)

    def one(self, index: int) -> Watched:
        watched = list(self.world.unfinished.values())
        return watched[index % len(watched)]

    @rule(
        length=st.integers(1, 5).flatmap(lambda n: st.sampled_from([n, 14 + n, 30 + n, 46 + n])),
        text=st.integers(0, 3),
        max_tokens=st.sampled_from([1, 2, 17, 40]),
        user=st.sampled_from(["flood", "a", "b"]),
        priority=st.integers(0, 2),
        tenant=st.sampled_from(TENANTS),
        n=st.integers(1, 4),
        prompt_logprobs=st.booleans(),
        patience=st.sampled_from([None, 0.0, 1.5, 1e6]),
        ignore_eos=st.booleans(),
        times=st.integers(1, 4),
    )
    def submit(
        self,
        length: int,
        text: int,
        max_tokens: int,
        user: str,
        priority: int,
        tenant: str | None,
        n: int,
        prompt_logprobs: bool,
        patience: float | None,
        ignore_eos: bool,
        times: int,
    ) -> None:
        has = self.options.__contains__
        rng = Random(text if has("alike") else length * 10 + text)
        prompt = tuple([FIRST_WORD + rng.randrange(8) for _ in range(length)])
        params = SamplingParams(
            seed=text,
            n=n if has("choices") else 1,
            max_tokens=max_tokens,
            prompt_logprobs=1 if prompt_logprobs and has("logprobs") else None,
            ignore_eos=ignore_eos,
        )
        asked = Submission(
            prompt,
            params,
            user=user if has("users") else "",
            priority=priority if has("priorities") else 0,
            tenant=tenant if has("tenants") else None,
            patience=patience if has("deadlines") else None,
        )
        for _ in range(times):
            self.world.submit(asked)

    @rule(count=st.integers(1, 12))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.world.step()

    @precondition(lambda self: self.allows("advance"))
    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @precondition(lambda self: self.allows("abort"))
    @rule(index=st.integers(0, 30))
    def abort(self, index: int) -> None:
        self.world.abort(self.one(index))

    @precondition(lambda self: self.allows("stop"))
    @rule(index=st.integers(0, 30), fails=st.booleans())
    def stop(self, index: int, fails: bool) -> None:
        if fails:
            self.world.fail_at_next_token(self.one(index))
        else:
            self.world.stop_at_next_token(self.one(index))

    @precondition(lambda self: self.allows("preempt") and self.world.engine.scheduler.running)
    @rule(index=st.integers(0, 5))
    def preempt(self, index: int) -> None:
        running = self.world.engine.scheduler.running
        request = running[index % len(running)]
        self.world.preempt(self.world.unfinished[request.request_id])

    @precondition(lambda self: self.allows("fail_draw"))
    @rule(index=st.integers(0, 30))
    def fail_draw(self, index: int) -> None:
        self.world.fail_draw(self.one(index))

    @precondition(lambda self: self.allows("break_off"))
    @rule(rows=st.integers(BEFORE_COPIES, 4))
    def break_off(self, rows: int) -> None:
        self.world.break_off(rows)

    @precondition(lambda self: self.allows("drain"))
    @rule()
    def drain(self) -> None:
        calm(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            calm(self.world)
            self.world.check_forgotten()


MOVES = settings(
    max_examples=80,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_any_moves_leave_the_engine_right() -> None:
    run_state_machine_as_test(EngineMachine, settings=MOVES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_very_many_moves_leave_the_engine_right() -> None:
    run_state_machine_as_test(
        EngineMachine, settings=settings(MOVES, max_examples=800, stateful_step_count=50)
    )


def test_the_machine_finds_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    one_block_too_many_is_published(monkeypatch)
    moves = settings(
        MOVES, max_examples=1000, database=None, derandomize=True, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(EngineMachine, settings=moves)
