"""The page that Prometheus reads, of numbers that stand still."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from farthing.engine.kv_manager import KvUsage
from farthing.engine.metrics import EngineLoad, EngineMetrics
from farthing.errors import FarthingError
from farthing.openai_protocol.errors import RequestError
from farthing.server.admission.admission import Admission
from farthing.server.admission.limits import QueueLimits
from farthing.server.admission.prompts import Ask
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.observation import engine_snapshots
from farthing.server.observation.http_counts import HttpCounts
from farthing.server.observation.metric_table import OWN_METRICS, VLLM_METRICS
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
            model=self.model,
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
    world.steps.predict = lambda decode, prefill: 0.1
    world.steps.on_step(stepped(3, 0, 0.2))
    record = RequestRecord("r", "/v1/completions")
    world.requests.started(record)
    record.failed(RequestError("full", status=429, code="queue_full"))
    world.requests.finished(record)
    world.engine.pid = 1
    return world


def test_every_metric_of_the_tables_is_shown_and_no_other() -> None:
    samples = rendered(busy_world())
    shown = {name for name, _ in samples}
    expected = set()
    for metric in (*VLLM_METRICS, *OWN_METRICS):
        if metric.kind == "histogram":
            expected |= {f"{metric.name}_{suffix}" for suffix in ("bucket", "count", "sum")}
        else:
            expected.add(metric.name)
    assert {name for name in shown if not name.startswith("process_")} == expected
    assert "process_resident_memory_bytes" in shown


def test_both_formats_say_the_same() -> None:
    async def both() -> tuple[tuple[bytes, str], tuple[bytes, str]]:
        page = busy_world().page()
        return await page.render(""), await page.render(
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
        )

    (text, text_type), (other, other_type) = asyncio.run(both())
    assert text_type == "text/plain; version=0.0.4; charset=utf-8"
    assert other_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert other.endswith(b"# EOF\n")
    families = list(read_openmetrics(other.decode()))
    in_other = {(s.name, frozenset(s.labels.items())) for f in families for s in f.samples}
    assert in_other == set(samples_of(text))
    kinds = {metric.name: metric.kind for metric in (*VLLM_METRICS, *OWN_METRICS)}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.startswith("process_"):
            assert kinds[name] == family.type


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "text/plain; version=abc",
        "text/plain;version=9.9;escaping=allow-utf-8",
        "nonsense;;;=,,",
        "\x80\xff",
    ],
)
def test_whatever_is_accepted_the_answer_can_be_read(accept: str) -> None:
    text, content_type = asyncio.run(World().page().render(accept))
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert samples_of(text)


def test_openmetrics_of_any_version_is_openmetrics_1() -> None:
    accept = "application/openmetrics-text; version=abc\r\nx: y"
    _, content_type = asyncio.run(World().page().render(accept))
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_what_the_engine_says() -> None:
    samples = rendered(World())
    for name, expected in {
        "vllm:num_requests_running": 5,
        "vllm:num_requests_waiting": 4,
        "vllm:kv_cache_usage_perc": 0.4,
        "vllm:prompt_tokens_total": 1000,
        "vllm:prompt_tokens_cached_total": 400,
        "vllm:generation_tokens_total": 500,
        "vllm:num_preemptions_total": 3,
        "vllm:prefix_cache_queries_total": 900,
        "vllm:prefix_cache_hits_total": 350,
        "farthing_steps_total": 10,
        "farthing_busy_seconds_total": 2.0,
        "farthing_weight_bytes_read_total": 10_000_000,
        "farthing_kv_bytes_read_total": 1600 * 4096 // 16,
        "farthing_read_bandwidth_bytes_per_second": (10_000_000 + 409_600) / 2,
        "farthing_read_bandwidth_limit_bytes_per_second": 20e9,
        "farthing_read_bandwidth_ratio": (10_000_000 + 409_600) / 2 / 20e9,
        "farthing_threads": 2,
        "farthing_connections": 7,
        "farthing_log_records_dropped_total": 2,
    }.items():
        assert value(samples, name) == expected, name
    by_source = "vllm:prompt_tokens_by_source_total"
    assert value(samples, by_source, source="local_compute") == 600
    assert value(samples, by_source, source="local_cache_hit") == 400
    waiting = "vllm:num_requests_waiting_by_reason"
    assert value(samples, waiting, reason="capacity") == 3
    assert value(samples, waiting, reason="deferred") == 1
    success = "vllm:request_success_total"
    assert value(samples, success, finished_reason="stop") == 4
    assert value(samples, success, finished_reason="abort") == 0
    blocks = [value(samples, "farthing_kv_blocks", state=s) for s in ("free", "owned", "cached")]
    assert blocks == [35, 40, 25]
    assert value(samples, "farthing_step_rows_total", kind="prefill") == 30
    assert value(samples, "farthing_snapshot_age_seconds") < 5


def test_queue_and_refusals() -> None:
    samples = rendered(busy_world())
    assert value(samples, "farthing_queue_requests") == 1
    assert value(samples, "farthing_queue_requests_limit") == 1
    assert value(samples, "farthing_queue_prompt_tokens") == 60
    assert value(samples, "farthing_queue_prompt_tokens_limit") == 100
    assert value(samples, "vllm:admission_rejections_total", reason="queue_requests") == 1
    assert value(samples, "vllm:admission_rejections_total", reason="rate") == 0
    assert value(samples, "farthing_refusals_total", reason="queue_full") == 1
    assert value(samples, "farthing_promised_wait_seconds_count") == 1
    labels = {"method": "POST", "path": "/v1/completions", "status": "429"}
    assert value(samples, "farthing_http_requests_total", **labels) == 1
    ended = {"endpoint": "/v1/completions", "outcome": "refused"}
    assert value(samples, "farthing_requests_total", **ended) == 1
    assert value(samples, "farthing_requests_in_progress", endpoint="/v1/completions") == 0


def test_predicted_and_actual_step_times() -> None:
    world = World()
    world.steps.predict = lambda decode, prefill: 0.1 * decode + 0.01 * prefill
    world.steps.on_step(stepped(2, 10, 0.6))  # 0.3 predicted
    world.steps.on_step(stepped(1, 0, 0.1))
    world.steps.on_step(stepped(0, 0, 5.0))  # nothing computed: no step
    samples = rendered(world)
    assert value(samples, "farthing_step_seconds_count") == 2
    assert value(samples, "farthing_step_seconds_sum") == pytest.approx(0.7)
    assert value(samples, "farthing_predicted_step_seconds_total") == pytest.approx(0.4)
    assert value(samples, "farthing_step_prediction_ratio_sum") == pytest.approx(3.0)


@pytest.mark.parametrize("phase", list(Phase))
def test_phase_and_health(phase: Phase) -> None:
    world = World()
    world.life.enter(phase)
    samples = rendered(world)
    shown = {p: value(samples, "farthing_phase", phase=p.value) for p in Phase}
    assert shown == {p: float(p is phase) for p in Phase}
    assert value(samples, "farthing_healthy") == (phase is Phase.READY)


def test_only_our_own_names_if_asked() -> None:
    names = {name for name, _ in rendered(busy_world(), "none")}
    assert not {name for name in names if name.startswith("vllm:")}
    assert {name for name in names if name.startswith("farthing_")}


@pytest.mark.parametrize("model", ['a"b\\c\nd', "\udcff odd", ""])
def test_any_model_name_is_a_label(model: str) -> None:
    samples = rendered(World(model=model))
    shown = model.encode("utf-8", "replace").decode()
    assert ("model_name", shown) in next(
        labels for name, labels in samples if name == "vllm:num_requests_running"
    )


def test_an_engine_that_loads() -> None:
    """Names are there from the start, so that whoever waits for them finds them."""

    async def nothing() -> Metrics | None:
        return None

    world = World(SilentEngine(nothing, info=None, loading=(30, 120)))
    samples = rendered(world)
    assert value(samples, "vllm:num_requests_running") == 0
    assert value(samples, "farthing_loaded_ratio") == 0.25
    assert value(samples, "farthing_snapshot_age_seconds") == math.inf
    assert "farthing_threads" not in {name for name, _ in samples}


def test_lengths_go_as_far_as_the_context() -> None:
    world = World()
    world.engine.info = replace(ENGINE_INFO, max_model_len=1000)
    bounds = [
        float(dict(labels)["le"])
        for name, labels in rendered(world)
        if name == "vllm:request_prompt_tokens_bucket"
    ]
    assert sorted(bounds) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, math.inf]


def test_an_engine_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it last said is shown, and how old it is; meanwhile the server goes on."""
    monkeypatch.setattr(engine_snapshots, "SCRAPE_SECONDS", 0.3)

    async def session() -> tuple[Samples, Samples, int]:
        world = World()
        page = world.page()
        before, _ = await page.render()

        async def never() -> Any:
            await asyncio.Event().wait()

        world.engine.answer = never
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.005)

        turning = asyncio.create_task(turn())
        began = time.monotonic()
        after, _ = await page.render()
        assert 0.3 <= time.monotonic() - began < 3
        turning.cancel()
        return samples_of(before), samples_of(after), turns

    before, after, turns = asyncio.run(session())
    assert turns > 10
    for name in ("vllm:generation_tokens_total", "farthing_steps_total"):
        assert value(after, name) == value(before, name) > 0
    assert value(after, "farthing_snapshot_age_seconds") >= 0.3


def test_an_answer_that_comes_late_is_the_next_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps longer than a scrape waits do not keep its numbers old."""
    monkeypatch.setattr(engine_snapshots, "SCRAPE_SECONDS", 0.05)

    async def session() -> None:
        between_steps = asyncio.Event()

        async def late() -> Metrics:
            await between_steps.wait()
            return some_metrics()

        world = World(SilentEngine(late))
        page = world.page()
        ages = []
        for _ in range(3):
            text, _ = await page.render()
            ages.append(value(samples_of(text), "farthing_snapshot_age_seconds"))
        assert ages == [math.inf] * 3
        assert world.engine.asked == 1, "the question stands"
        between_steps.set()
        text, _ = await page.render()
        assert value(samples_of(text), "farthing_steps_total") == 10

    asyncio.run(session())


def test_an_engine_that_has_ended() -> None:
    async def session() -> Samples:
        world = World()
        page = world.page()
        await page.render()

        async def ended() -> Metrics:
            raise FarthingError("the engine has ended")

        world.engine.answer = ended
        text, _ = await page.render()
        return samples_of(text)

    assert value(asyncio.run(session()), "farthing_steps_total") == 10


def test_scrapes_at_the_same_time_share_a_question_and_one_that_leaves_takes_none_along() -> None:
    async def session() -> None:
        answer: asyncio.Future[Metrics] = asyncio.get_running_loop().create_future()

        async def wait() -> Metrics:
            return await answer

        world = World(SilentEngine(wait))
        page = world.page()
        accepts = ["", "application/openmetrics-text"] * 10
        scrapes = [asyncio.create_task(page.render(accept)) for accept in accepts]
        await asyncio.sleep(0.01)
        for scrape in scrapes[:5]:
            scrape.cancel()
        await asyncio.sleep(0.01)
        answer.set_result(some_metrics())
        pages = await asyncio.gather(*scrapes[5:])
        assert len({text for text, _ in pages}) == 2
        assert world.engine.asked == 1
        await page.render()
        assert world.engine.asked == 2, "the next one asks again"

    asyncio.run(session())


def test_the_text_is_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    world = busy_world()
    page = world.page()
    made = page._process.collect

    def collect() -> Any:
        threads.append(threading.get_ident())
        return made()

    monkeypatch.setattr(page._process, "collect", collect)
    asyncio.run(page.render())
    assert threads
    assert threading.get_ident() not in threads
