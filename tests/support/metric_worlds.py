"""A server's numbers that stand still, and the page they make, read back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

from farthing.engine.kv_manager import KvUsage
from farthing.engine.metrics import EngineLoad, EngineMetrics
from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.prompts import Ask
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.observation.http_counts import HttpCounts
from farthing.server.observation.metrics import MetricsCompat, MetricsPage
from farthing.server.observation.record import RequestRecord
from farthing.server.observation.request_counts import RequestCounts
from farthing.server.observation.sources import Sources
from farthing.server.observation.step_counts import StepCounts
from farthing.server.principal import ANYBODY
from farthing.server.seam.messages import EngineInfo, Metrics, Stepped
from support.engine_info import ENGINE_INFO

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class SilentEngine:
    """Answers with what it is given, when it is let."""

    answer: Callable[[], Awaitable[Metrics | None]]
    info: EngineInfo | None = ENGINE_INFO
    loading: tuple[int, int] = (0, 0)
    pid: int | None = None
    asked: int = 0

    async def metrics(self, timeout: float) -> Metrics | None:
        self.asked += 1
        try:
            return await asyncio.wait_for(self.answer(), timeout)
        except TimeoutError:
            return None

    def stalled_for(self) -> float:
        return 0.0


def some_metrics() -> Metrics:
    metrics = EngineMetrics(
        steps=10,
        step_seconds=2.0,
        decode_rows=70,
        prefill_rows=30,
        prompt_tokens=1000,
        cached_tokens=400,
        generation_tokens=500,
        preemptions=3,
        prefix_queries=900,
        prefix_hits=350,
        kv_stored=1600,
    )
    metrics.finished.update({"stop": 4, "length": 2})
    metrics.time_to_first_token.observe(0.3)
    metrics.request_prompt_tokens.observe(700)
    load = EngineLoad(5, 4, 1, KvUsage(100, 40, 25, 640, 600))
    return Metrics(1, metrics, load)


async def at_once() -> Metrics:
    return some_metrics()


def stepped(decode: int, prefill: int, seconds: float) -> Stepped:
    return Stepped(10.0, 10.0 + seconds, decode, prefill, 1, 0, (), (), (), (), ())


@dataclass
class World:
    """All that a page is made of."""

    engine: SilentEngine = field(default_factory=lambda: SilentEngine(at_once))
    life: LifeCycle = field(default_factory=lambda: LifeCycle(30.0))
    http: HttpCounts = field(default_factory=HttpCounts)
    requests: RequestCounts = field(default_factory=RequestCounts)
    steps: StepCounts = field(default_factory=StepCounts)
    admission: Admission | None = None
    model: str = "the model"

    def page(self, compat: MetricsCompat = "vllm") -> MetricsPage:
        sources = Sources(
            model=lambda: self.model,
            version="1.2.3",
            engine=self.engine,
            life=self.life,
            healthy=lambda: self.life.phase is Phase.READY,
            admission=lambda: self.admission,
            connections=lambda: 7,
            dropped_log_records=lambda: 2,
            http=self.http,
            requests=self.requests,
            steps=self.steps,
        )
        return MetricsPage(sources, compat)


def samples_of(text: bytes) -> Samples:
    found: Samples = {}
    for family in read_text(text.decode()):
        for sample in family.samples:
            name = sample.name, frozenset(sample.labels.items())
            assert name not in found, f"{name} twice"
            found[name] = sample.value
    return found


def rendered(world: World, compat: MetricsCompat = "vllm") -> Samples:
    text, _ = asyncio.run(world.page(compat).render())
    return samples_of(text)


def value(samples: Samples, name: str, **labels: str) -> float:
    if name.startswith("vllm:"):
        labels = {"model_name": "the model", "engine": "0", **labels}
    return samples[name, frozenset(labels.items())]


def busy_world() -> World:
    """One in which everything has happened."""
    world = World(admission=Admission(QueueLimits(1, 100), max_num_seqs=4))
    assert world.admission is not None
    world.admission.enter(ANYBODY, [Ask(1, 60, 1, 10)])
    with pytest.raises(RequestError):
        world.admission.enter(ANYBODY, [Ask(2, 10, 1, 10)])
    world.life.enter(Phase.READY)
    world.http.add("POST", "/v1/completions", 429, 0.01)
    world.steps.on_step(stepped(3, 0, 0.2), predicted=0.1)
    record = RequestRecord("r", "/v1/completions")
    world.requests.started(record)
    record.failed(RequestError("full", status=429, code="queue_full"))
    world.requests.finished(record)
    world.engine.pid = 1
    return world
