"""The page that Prometheus reads, of numbers that stand still."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from farthing.server.life_cycle import Phase
from farthing.server.observation.metric_table import OWN_METRICS, VLLM_METRICS
from farthing.server.seam.messages import Metrics
from support.engine_info import ENGINE_INFO
from support.metric_worlds import (
    SilentEngine,
    World,
    busy_world,
    rendered,
    samples_of,
    stepped,
    value,
)


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
    world.steps.on_step(stepped(2, 10, 0.6), predicted=0.3)
    world.steps.on_step(stepped(1, 0, 0.1), predicted=0.1)
    world.steps.on_step(stepped(0, 0, 5.0), predicted=1.0)  # nothing computed: no step
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
