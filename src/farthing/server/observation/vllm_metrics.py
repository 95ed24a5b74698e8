"""The engine's metrics under the names that vLLM gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from farthing.engine.metrics import EngineLoad, EngineMetrics, Histogram
from farthing.engine.request import FinishReason
from farthing.server.admission.numbers import Refusal
from farthing.server.observation.metric_page import MetricPage
from farthing.server.observation.metric_table import VLLM_METRICS
from farthing.server.seam.messages import EngineInfo


def vllm_page(
    model: str,
    info: EngineInfo | None,
    metrics: EngineMetrics,
    load: EngineLoad,
    refusals: Mapping[Refusal, int],
) -> MetricPage:
    """All of :data:`VLLM_METRICS`; what needs ``info`` is left out without it."""
    page = MetricPage(VLLM_METRICS, {"model_name": model, "engine": "0"})
    _gauges(page, info, load)
    _counters(page, metrics, refusals)
    most = None if info is None else info.max_model_len
    for name, values in _histograms(metrics).items():
        page.histogram(f"vllm:{name}", values)
    for name, values in _lengths(metrics).items():
        page.histogram(f"vllm:{name}", values, most=most)
    return page


def _gauges(page: MetricPage, info: EngineInfo | None, load: EngineLoad) -> None:
    page.set("vllm:num_requests_running", load.num_running)
    page.set("vllm:num_requests_waiting", load.num_waiting)
    by_reason, deferred = "vllm:num_requests_waiting_by_reason", load.num_deferred
    page.set(by_reason, load.num_waiting - deferred, reason="capacity")
    page.set(by_reason, deferred, reason="deferred")
    used = load.kv.held_blocks / load.kv.num_blocks if load.kv.num_blocks else 0.0
    page.set("vllm:kv_cache_usage_perc", used)
    page.set("vllm:engine_sleep_state", 1, sleep_state="awake")
    if info is not None:
        page.set(
            "vllm:cache_config_info",
            1,
            block_size=str(info.block_tokens),
            num_gpu_blocks=str(info.num_blocks),  # the name vLLM has for what it computes with
            num_cpu_blocks="0",
            cache_dtype=info.kv_cache_dtype,
            enable_prefix_caching=str(info.prefix_caching),
        )


def _counters(page: MetricPage, metrics: EngineMetrics, refusals: Mapping[Refusal, int]) -> None:
    page.set("vllm:prompt_tokens_total", metrics.prompt_tokens)
    name = "vllm:prompt_tokens_by_source_total"
    page.set(name, metrics.prompt_tokens - metrics.cached_tokens, source="local_compute")
    page.set(name, metrics.cached_tokens, source="local_cache_hit")
    page.set("vllm:prompt_tokens_cached_total", metrics.cached_tokens)
    page.set("vllm:generation_tokens_total", metrics.generation_tokens)
    for reason in get_args(FinishReason):
        count = metrics.finished[reason]
        page.set("vllm:request_success_total", count, finished_reason=reason)
    page.set("vllm:num_preemptions_total", metrics.preemptions)
    page.set("vllm:prefix_cache_queries_total", metrics.prefix_queries)
    page.set("vllm:prefix_cache_hits_total", metrics.prefix_hits)
    for refusal in Refusal:
        count = refusals.get(refusal, 0)
        page.set("vllm:admission_rejections_total", count, reason=refusal.value)


def _histograms(metrics: EngineMetrics) -> dict[str, Histogram]:
    return {
        "time_to_first_token_seconds": metrics.time_to_first_token,
        "inter_token_latency_seconds": metrics.inter_token,
        "request_time_per_output_token_seconds": metrics.time_per_token,
        "e2e_request_latency_seconds": metrics.latency,
        "request_queue_time_seconds": metrics.queue,
        "request_inference_time_seconds": metrics.inference,
        "request_prefill_time_seconds": metrics.prefill,
        "request_decode_time_seconds": metrics.decode,
        "request_params_n": metrics.choices,
        "iteration_tokens_total": metrics.step_tokens,
        "request_num_preemptions": metrics.request_preemptions,
    }


def _lengths(metrics: EngineMetrics) -> dict[str, Histogram]:
    """Of tokens of a request, which the context bounds."""
    return {
        "request_prompt_tokens": metrics.request_prompt_tokens,
        "request_generation_tokens": metrics.request_generation_tokens,
        "request_max_num_generation_tokens": metrics.longest_choice,
        "request_params_max_tokens": metrics.request_max_tokens,
        "request_prefill_kv_computed_tokens": metrics.computed_prompt_tokens,
    }
