"""Engines over one model, however it is told to compute, and what each request must get of them.

What a request gets alone, its prompt in one pass of one thread and nothing shared, is the measure:
every token, log probability and bit of the logits, however else it is computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from farthing import LLM
from farthing.engine.block_pool import blocks_for
from farthing.engine.engine import Engine, EngineConfig, TokenEvent
from farthing.engine.request import Request
from farthing.engine.scheduler import SchedulerConfig
from farthing.program.kv_types import KvDtype
from farthing.program.native import KvCache, NativeExecutor
from farthing.sampling.sampler import TokenLogprob
from support.engine_requests import Spec, make_neighbour, make_prompt, make_spec, make_subjects
from support.recorded_logits import Executor, RecordingRunner, Rows

CONTEXT = 2304
"""Tokens of one sequence: more than two of the spans that attention is cut into."""


@dataclass
class Outcome:
    """All that a request got."""

    tokens: list[int]
    logprobs: list[list[TokenLogprob] | None] = field(default_factory=list)
    prompt_logprobs: list[list[TokenLogprob]] = field(default_factory=list)
    finish_reason: str | None = None
    problem: str | None = None
    rows: Rows = field(default_factory=dict)


class EngineModel:
    """A model in memory, from whose parts engines are made."""

    def __init__(self, path: Path, *, every_row: bool = True) -> None:
        self.path = path
        self.every_row = every_row
        self.llm = LLM(path, max_model_len=CONTEXT, num_threads=1)
        self.config = self.llm.config
        self._executors: dict[tuple[int, int], NativeExecutor] = {}

    def executor(self, num_threads: int, max_rows: int) -> NativeExecutor:
        """All threads play, also where there are fewer CPUs."""
        made = self._executors.get((num_threads, max_rows))
        if made is None:
            first = self.llm.runner.executor
            made = self._executors[num_threads, max_rows] = NativeExecutor(
                first.program,
                first.weights,
                num_threads=num_threads,
                max_rows=max_rows,
                cpus=num_threads,
            )
        return made

    def cache(self, dtype: KvDtype, num_blocks: int) -> KvCache:
        """A cache of its own for each run."""
        return KvCache(
            dtype=dtype,
            num_layers=self.llm.runner.executor.program.num_layers,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            num_blocks=num_blocks,
        )


class EngineRun:
    """One engine with a recording runner; its time is the number of the step."""

    def __init__(
        self,
        model: EngineModel,
        kv_dtype: KvDtype,
        *,
        num_threads: int = 2,
        num_blocks: int = 80,
        max_model_len: int = CONTEXT,
        kv: Any = "paged",
        prefix_caching: bool = True,
        max_num_seqs: int = 40,
        max_num_batched_tokens: int = 512,
        max_preemptions: int = 1000,
        every_row: bool = True,
        poison: bool = True,
        drop_copies: bool = False,
        instead: Callable[[NativeExecutor], Executor] = lambda executor: executor,
        **scheduler: Any,
    ) -> None:
        every_row = every_row and model.every_row
        # Of each row the logits may be asked for twice, and a token.
        max_rows = (3 if every_row else 1) * max_num_batched_tokens + 2 * max_num_seqs
        executor = instead(model.executor(num_threads, max(max_rows, 512)))
        cache = model.cache(kv_dtype, num_blocks)
        self.runner = RecordingRunner(executor, cache, every_row=every_row)
        self.engine = Engine(
            self.runner,
            EngineConfig(
                max_model_len=max_model_len,
                scheduler=SchedulerConfig(
                    max_num_seqs=min(max_num_seqs, max_num_batched_tokens),
                    max_num_batched_tokens=max_num_batched_tokens,
                    max_preemptions=max_preemptions,
                    **scheduler,
                ),
                kv=kv,
                prefix_caching=prefix_caching,
            ),
            vocabulary=model.llm.engine.vocabulary,
            grammars=model.llm.engine.grammars,
            eos_token_ids=model.llm.tokenizer.eos_token_ids,
        )
        self.scheduler = self.engine.scheduler
        self.runner.drop_copies = drop_copies
        if poison:
            self.runner.poison_for(self.scheduler, self.engine.prefix_cache)
        self.submitted: list[tuple[Spec, Request]] = []
        self.now = 0
        self.broken_off = 0
        self.preempted_after: list[int] = []  # so many tokens
        self._outcomes: dict[str, Outcome] = {}

    def submit(self, spec: Spec) -> list[Request]:
        """Queues a prompt; its choices."""
        requests = self.engine.make_request(spec.prompt, spec.params)
        return self.add(spec, requests)

    def submit_choice(self, spec: Spec, choice: int, seed: int) -> Request:
        """Queues one of several choices as if it were the only one."""
        params = replace(spec.params, n=choice + 1, seed=seed)
        request = self.engine.make_request(spec.prompt, params)[choice]
        request.leader, request.followers = None, []
        return self.add(spec, [request])[0]

    @property
    def evictable(self) -> int:
        """Blocks that the prefix cache holds and nobody uses."""
        return self.engine.kv.usage([]).cached_blocks

    def add(self, spec: Spec, requests: list[Request]) -> list[Request]:
        """Queues the choices of a prompt."""
        self.engine.add_request(requests[0], self.now)
        for request in requests:
            self._outcomes[request.request_id] = Outcome(request.output_token_ids)
            self.submitted.append((spec, request))
        return requests

    def step(self) -> None:
        """One step, after which everything is accounted for."""
        self.now += 1
        try:
            events = self.engine.step(self.now)
        except BrokenOffError:
            self.broken_off += 1
            events = []
        for event in events:
            self._note(event)
        self.engine.check_integrity()

    def _note(self, event: TokenEvent) -> None:
        outcome = self._outcomes[event.request.request_id]
        outcome.prompt_logprobs += event.prompt_logprobs
        outcome.problem = None if event.problem is None else str(event.problem)
        if event.token is not None:
            outcome.logprobs.append(event.logprobs)

    def finish(self, after: Callable[[], None] = lambda: None, limit: int = 5000) -> None:
        """Steps until nothing is left to do; ``after`` is called after each."""
        start = self.now
        while self.engine.has_work:
            self.step()
            after()
            assert self.now - start < limit, "no end in sight"

    def outcome(self, request: Request) -> Outcome:
        """What a request has got so far."""
        return replace(
            self._outcomes[request.request_id],
            finish_reason=request.finish_reason,
            rows=self.runner.executor.rows.get(request.request_id, {}),
        )


class BrokenOffError(Exception):
    """A pass that does not come back."""


class Grid:
    """Requests over one model and type of cache, and what they get alone."""

    def __init__(
        self, model: EngineModel, kv_dtype: KvDtype, *, max_tokens: int = 20, longest: int = 60
    ) -> None:
        self.model = model
        self.kv_dtype = kv_dtype
        self.max_tokens = max_tokens
        self.longest = longest
        self.vocab_size = model.config.vocab_size
        self.subjects = make_subjects(self.vocab_size, max_tokens)
        self._alone: dict[object, Outcome] = {}

    def prompt(self, seed: int, length: int) -> tuple[int, ...]:
        """Random tokens."""
        return make_prompt(random.Random(seed), self.vocab_size, length)

    def spec(self, prompt: tuple[int, ...], max_tokens: int | None = None, **params: Any) -> Spec:
        """A request that ends by its length; greedy, unless it is told otherwise."""
        return make_spec(prompt, max_tokens or self.max_tokens, **{"temperature": 0, **params})

    def neighbour(self, rng: random.Random) -> Spec:
        """A random request."""
        return make_neighbour(rng, self.vocab_size, self.longest, self.max_tokens)

    def continued(self, rng: random.Random, beginning: tuple[int, ...]) -> Spec:
        """A random request whose prompt begins so."""
        other = self.neighbour(rng)
        return replace(other, prompt=beginning + other.prompt[:20])

    def run(self, **settings: Any) -> EngineRun:
        """A fresh engine."""
        return EngineRun(self.model, self.kv_dtype, **settings)

    def alone(self, spec: Spec, choice: int, seed: int) -> Outcome:
        """What one choice gets alone: its prompt in one pass, by one thread, nothing shared."""
        if spec.params.greedy:
            seed = 0  # draws nothing
        key = (spec.prompt, repr(replace(spec.params, n=1, seed=seed)), choice)
        found = self._alone.get(key)
        if found is None:
            run = self.run(
                num_threads=1,
                num_blocks=blocks_for(len(spec.prompt) + (spec.params.max_tokens or 0)),
                prefix_caching=False,
                max_num_batched_tokens=2400 if len(spec.prompt) > 512 else 512,
            )
            request = run.submit_choice(spec, choice, seed)
            run.finish()
            found = self._alone[key] = run.outcome(request)
            assert found.problem is None, found.problem
            computed = len(spec.prompt) + len(found.tokens) - 1
            steps = max(len(found.tokens), -(-(len(spec.prompt) - 1) // 64))
            assert run.runner.executor.passes <= steps + 1
            if self.model.every_row:
                assert sorted(found.rows) == list(range(computed))
            assert len(set(found.rows.values())) > 0.9 * len(found.rows), "logits are all alike"
        return found

    def check(self, run: EngineRun) -> None:
        """Asserts that every request of ``run`` got what it gets alone.

        One that was aborted: as far as it came.
        """
        assert run.submitted
        for spec, request in run.submitted:
            alone = self.alone(spec, request.choice, request.seed)
            assert_same(request.request_id, len(spec.prompt), run.outcome(request), alone)

    def finish_and_check(
        self, run: EngineRun, after: Callable[[], None] = lambda: None
    ) -> EngineRun:
        """As the names say."""
        run.finish(after)
        self.check(run)
        return run


def assert_same(name: str, prompt: int, got: Outcome, alone: Outcome) -> None:
    """Asserts equality to the bit of all that two runs have of a request."""
    cut = got.finish_reason == "abort"
    differ = [p for p in got.rows.keys() & alone.rows.keys() if got.rows[p] != alone.rows[p]]
    assert not differ, f"{name}: other logits at positions {sorted(differ)[:9]}"
    assert got.rows.keys() <= alone.rows.keys(), f"{name}: rows that it does not have alone"
    assert got.tokens == (alone.tokens[: len(got.tokens)] if cut else alone.tokens), name
    sampled = set(range(prompt - 1, prompt - 1 + len(got.tokens)))
    assert sampled <= got.rows.keys(), f"{name}: logits of a token were not seen"
    for mine, other in (
        (got.logprobs, alone.logprobs),
        (got.prompt_logprobs, alone.prompt_logprobs),
    ):
        assert mine == (other[: len(mine)] if cut else other), f"{name}: other log probabilities"
    if not cut:
        assert (got.finish_reason, got.problem) == (alone.finish_reason, alone.problem), name
