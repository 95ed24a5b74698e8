"""The page that Prometheus reads, of an engine process that has served."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

from farthing import SamplingParams
from farthing.engine.metrics import Histogram
from farthing.server.life_cycle import LifeCycle, Phase
from farthing.server.observation.http_counts import HttpCounts
from farthing.server.observation.metrics import MetricsPage
from farthing.server.observation.observation import Observation
from farthing.server.observation.sources import Sources
from farthing.server.observation.step_counts import StepCounts
from farthing.server.seam.messages import Metrics
from support.engine_process import RunningEngine

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

# What vLLM 0.33 shows of an engine that generates text, counters with their ending.
GAUGES = {
    "num_requests_running",
    "num_requests_waiting",
    "num_requests_waiting_by_reason",
    "kv_cache_usage_perc",
    "engine_sleep_state",
    "cache_config_info",
}
COUNTERS = {
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "num_preemptions_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_cached_total",
    "prompt_tokens_by_source_total",
    "admission_rejections_total",
}
FIRST_TOKEN = (
    ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"  # seconds
)
BETWEEN_TOKENS = ".002 .005 .01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80"
LATENCY = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
LENGTH = "1 2 5 10 20 50 100 200"  # tokens of a context of 256
HISTOGRAMS = {
    "time_to_first_token_seconds": FIRST_TOKEN,
    "inter_token_latency_seconds": BETWEEN_TOKENS,
    "request_time_per_output_token_seconds": BETWEEN_TOKENS,
    "e2e_request_latency_seconds": LATENCY,
    "request_queue_time_seconds": LATENCY,
    "request_inference_time_seconds": LATENCY,
    "request_prefill_time_seconds": LATENCY,
    "request_decode_time_seconds": LATENCY,
    "request_prompt_tokens": LENGTH,
    "request_generation_tokens": LENGTH,
    "request_max_num_generation_tokens": LENGTH,
    "request_params_max_tokens": LENGTH,
    "request_prefill_kv_computed_tokens": LENGTH,
    "request_params_n": "1 2 5 10 20",
    "iteration_tokens_total": "1 8 16 32 64 128 256 512 1024 2048 4096 8192",
    "request_num_preemptions": None,
}


class Served:
    """What an engine said after a few prompts, and the page that shows it."""

    def __init__(self, model: Path) -> None:
        with RunningEngine(model, measure_bandwidth=True) as engine:
            steps = StepCounts()
            sources = Sources(
                model=lambda: "tiny",
                version="1",
                engine=engine.client,
                life=LifeCycle(1.0),
                healthy=lambda: True,
                admission=lambda: None,
                connections=lambda: 0,
                dropped_log_records=lambda: 0,
                http=HttpCounts(),
                requests=Observation().counts,
                steps=steps,
            )
            sources.life.enter(Phase.READY)
            for prompt, params in (
                ([5] * 40, SamplingParams(max_tokens=7, ignore_eos=True)),
                ([5] * 40, SamplingParams(max_tokens=1, ignore_eos=True)),  # cached
                ([9] * 3, SamplingParams(n=3, max_tokens=9, ignore_eos=True, seed=1)),
            ):
                engine.run(self._serve(engine, prompt, params))
            for step in engine.steps:
                steps.on_step(step, None)
            metrics = engine.run(engine.client.metrics(10))
            assert metrics is not None
            self.metrics: Metrics = metrics
            self.steps = steps
            self.info = engine.client.info
            text, _ = engine.run(MetricsPage(sources).render())
        self.samples: Samples = {}
        for family in read_text(text.decode()):
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    async def _serve(
        self, engine: RunningEngine, prompt: list[int], params: SamplingParams
    ) -> None:
        submission = await engine.submit(prompt, params, stream=False)
        await submission.output()

    def value(self, name: str, **labels: str) -> float:
        if name.startswith("vllm:"):
            labels = {"model_name": "tiny", "engine": "0", **labels}
        return self.samples[name, frozenset(labels.items())]

    def buckets(self, name: str) -> dict[float, float]:
        return {
            float(dict(labels)["le"]): value
            for (sample, labels), value in self.samples.items()
            if sample == f"{name}_bucket"
        }


@pytest.fixture(scope="module")
def served(tiny_model: Path) -> Served:
    return Served(tiny_model)


def test_names_are_vllms(served: Served) -> None:
    shown = {name.removeprefix("vllm:") for name, _ in served.samples if name.startswith("vllm:")}
    of_histograms = {
        f"{name}_{suffix}" for name in HISTOGRAMS for suffix in ("bucket", "count", "sum")
    }
    assert shown == GAUGES | COUNTERS | of_histograms
    for name, labels in served.samples:
        if name.startswith("vllm:"):
            assert {("model_name", "tiny"), ("engine", "0")} <= labels


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_buckets_are_vllms(served: Served, name: str) -> None:
    bounds = HISTOGRAMS[name]
    shown = sorted(served.buckets(f"vllm:{name}"))
    assert shown[-1] == float("inf")
    if bounds is not None:
        assert shown[:-1] == [float(bound) for bound in bounds.split()]


def test_histograms_count_what_was_served(served: Served) -> None:
    """Three prompts, five choices."""
    for name, count, total in (
        ("request_prompt_tokens", 5, 40 + 40 + 3 * 3),
        ("request_generation_tokens", 5, 7 + 1 + 3 * 9),
        ("request_params_max_tokens", 5, 7 + 1 + 3 * 9),
        ("request_max_num_generation_tokens", 3, 7 + 1 + 9),
        ("request_params_n", 3, 1 + 1 + 3),
    ):
        assert served.value(f"vllm:{name}_count") == count, name
        assert served.value(f"vllm:{name}_sum") == total, name
    assert served.buckets("vllm:request_generation_tokens") == {
        **{1: 1, 2: 1, 5: 1, 10: 5, 20: 5, 50: 5, 100: 5, 200: 5},
        float("inf"): 5,
    }
    assert served.value("vllm:time_to_first_token_seconds_count") == 5
    assert served.value("vllm:inter_token_latency_seconds_count") == 6 + 0 + 3 * 8


def test_histograms_are_cumulative_and_end_at_their_count(served: Served) -> None:
    names = {name.removesuffix("_bucket") for name, _ in served.samples if name.endswith("_bucket")}
    assert len(names) > len(HISTOGRAMS)
    for name in names:
        if name.startswith("farthing_http"):
            continue
        buckets = served.buckets(name)
        counts = [buckets[bound] for bound in sorted(buckets)]
        assert counts == sorted(counts), name
        count = next(v for (n, _), v in served.samples.items() if n == f"{name}_count")
        assert counts[-1] == count


def test_every_histogram_of_the_engine_is_shown_under_its_name(served: Served) -> None:
    metrics = served.metrics.metrics
    named = {
        "time_to_first_token_seconds": metrics.time_to_first_token,
        "inter_token_latency_seconds": metrics.inter_token,
        "request_time_per_output_token_seconds": metrics.time_per_token,
        "e2e_request_latency_seconds": metrics.latency,
        "request_queue_time_seconds": metrics.queue,
        "request_inference_time_seconds": metrics.inference,
        "request_prefill_time_seconds": metrics.prefill,
        "request_decode_time_seconds": metrics.decode,
        "request_prompt_tokens": metrics.request_prompt_tokens,
        "request_generation_tokens": metrics.request_generation_tokens,
        "request_max_num_generation_tokens": metrics.longest_choice,
        "request_params_max_tokens": metrics.request_max_tokens,
        "request_prefill_kv_computed_tokens": metrics.computed_prompt_tokens,
        "request_params_n": metrics.choices,
        "iteration_tokens_total": metrics.step_tokens,
        "request_num_preemptions": metrics.request_preemptions,
    }
    assert set(named) == set(HISTOGRAMS)
    own = [getattr(metrics, f.name) for f in fields(metrics)]
    assert len([h for h in own if isinstance(h, Histogram)]) == len(named)
    for name, values in named.items():
        assert served.value(f"vllm:{name}_sum") == values.total, name
        assert served.value(f"vllm:{name}_count") == sum(values.counts) > 0, name
    timed = [(v.total, v.count) for name, v in named.items() if name.endswith("seconds")]
    assert len(set(timed)) == len(timed), "one cannot pass for another"


def test_counters_say_what_the_engine_says(served: Served) -> None:
    metrics = served.metrics.metrics
    assert served.value("vllm:generation_tokens_total") == 7 + 1 + 27
    assert served.value("vllm:request_success_total", finished_reason="length") == 5
    assert served.value("vllm:prompt_tokens_total") == metrics.prompt_tokens
    computed = served.value("vllm:prompt_tokens_by_source_total", source="local_compute")
    cached = served.value("vllm:prompt_tokens_by_source_total", source="local_cache_hit")
    assert computed + cached == metrics.prompt_tokens
    shared = 2 * 2  # of the prompt of 3 tokens, by its second and third choice
    assert cached == served.value("vllm:prompt_tokens_cached_total") == 32 + shared
    assert served.value("vllm:prefix_cache_queries_total") == 40 + 40 + 3
    assert served.value("vllm:prefix_cache_hits_total") == 32, "two full blocks"
    assert served.value("farthing_steps_total") == metrics.steps


def test_steps_are_counted_alike_on_both_sides(served: Served) -> None:
    assert served.value("farthing_step_seconds_count") == served.metrics.metrics.steps
    tokens = served.value("vllm:iteration_tokens_total_sum")
    by_kind = [served.value("farthing_step_rows_total", kind=k) for k in ("decode", "prefill")]
    assert sum(by_kind) == tokens > 0


def test_what_steps_read(served: Served) -> None:
    assert served.info is not None
    steps = served.value("farthing_steps_total")
    read = served.value("farthing_weight_bytes_read_total")
    assert read == steps * served.info.weight_bytes > 0
    assert served.value("farthing_kv_bytes_read_total") > 0
    limit = served.value("farthing_read_bandwidth_limit_bytes_per_second")
    assert 1e8 < limit < 1e13, "bytes a second of any memory there is"
    rate = served.value("farthing_read_bandwidth_bytes_per_second")
    assert served.value("farthing_read_bandwidth_ratio") == pytest.approx(rate / limit)


def test_blocks_are_all_accounted_for(served: Served) -> None:
    states = [served.value("farthing_kv_blocks", state=s) for s in ("free", "owned", "cached")]
    assert served.info is not None
    assert sum(states) == served.info.num_blocks
    assert states[1] == 0
    assert states[2] > 0, "of the prompts that were served"


def test_both_processes_are_there(served: Served) -> None:
    for process in ("server", "engine"):
        assert served.value("farthing_process_memory_bytes", process=process, kind="file") > 0
        faults = served.value("farthing_process_page_faults_total", process=process, kind="minor")
        assert faults > 0
        assert served.value("farthing_process_threads", process=process) >= 1
