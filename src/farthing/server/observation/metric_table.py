"""Every metric that is shown: name, kind, labels, meaning. docs/metrics.md lists them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` as samples have it: a counter's ends with ``_total``."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


def _vllm(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(f"vllm:{name}", kind, meaning, ("model_name", "engine", *labels))


def _own(name: str, kind: Kind, meaning: str, *labels: str) -> Metric:
    return Metric(f"farthing_{name}", kind, meaning, labels)


VLLM_METRICS = (
    _vllm("num_requests_running", "gauge", "Requests that run: each choice is one."),
    _vllm("num_requests_waiting", "gauge", "Requests that wait for their first or next turn."),
    _vllm(
        "num_requests_waiting_by_reason",
        "gauge",
        "Requests that wait: for room (capacity), or for the choice that reads their prompt "
        "(deferred).",
        "reason",
    ),
    _vllm("kv_cache_usage_perc", "gauge", "Share of the KV blocks that requests hold; 1 is all."),
    _vllm(
        "engine_sleep_state",
        "gauge",
        "1 for awake, always: engines here do not sleep.",
        "sleep_state",
    ),
    _vllm(
        "cache_config_info",
        "gauge",
        "1; how the KV cache is laid out.",
        *("block_size", "num_gpu_blocks", "num_cpu_blocks", "cache_dtype"),
        "enable_prefix_caching",
    ),
    _vllm(
        "prompt_tokens_total",
        "counter",
        "Tokens of prompts that have been read; as in vLLM, for each choice anew.",
    ),
    _vllm(
        "prompt_tokens_by_source_total",
        "counter",
        "The same tokens: computed here (local_compute) or found in the "
        "prefix cache (local_cache_hit).",
        "source",
    ),
    _vllm(
        "prompt_tokens_cached_total", "counter", "Tokens of prompts that were not computed again."
    ),
    _vllm("generation_tokens_total", "counter", "Tokens generated."),
    _vllm("request_success_total", "counter", "Requests that have ended.", "finished_reason"),
    _vllm("num_preemptions_total", "counter", "Times that a request gave way to others."),
    _vllm("prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache."),
    _vllm("prefix_cache_hits_total", "counter", "Of those, tokens found."),
    _vllm("admission_rejections_total", "counter", "Requests refused for want of room.", "reason"),
    _vllm("time_to_first_token_seconds", "histogram", "From arrival to the first token."),
    _vllm("inter_token_latency_seconds", "histogram", "From a token to the next."),
    _vllm(
        "request_time_per_output_token_seconds",
        "histogram",
        "Mean time of a request's tokens after the first.",
    ),
    _vllm("e2e_request_latency_seconds", "histogram", "From arrival to the end."),
    _vllm("request_queue_time_seconds", "histogram", "From arrival to the first pass."),
    _vllm("request_inference_time_seconds", "histogram", "From the first pass to the last token."),
    _vllm("request_prefill_time_seconds", "histogram", "From the first pass to the first token."),
    _vllm("request_decode_time_seconds", "histogram", "From the first token to the last."),
    _vllm("request_prompt_tokens", "histogram", "Tokens of a request's prompt."),
    _vllm("request_generation_tokens", "histogram", "Tokens that a request generated."),
    _vllm(
        "request_max_num_generation_tokens",
        "histogram",
        "Tokens of the longest choice of a prompt.",
    ),
    _vllm("request_params_n", "histogram", "Choices asked of a prompt."),
    _vllm(
        "request_params_max_tokens", "histogram", "Tokens that a request could generate at most."
    ),
    _vllm("iteration_tokens_total", "histogram", "Tokens that a step computed."),
    _vllm("request_num_preemptions", "histogram", "Times that a request gave way to others."),
    _vllm(
        "request_prefill_kv_computed_tokens",
        "histogram",
        "Tokens of a request's prompt that were computed, not found in the prefix cache.",
    ),
)

OWN_METRICS = (
    _own(
        "build_info",
        "gauge",
        "1; what serves: versions, instruction set, numerics.",
        *("version", "isa", "fingerprint", "kv_cache_dtype", "model_name"),
    ),
    _own("phase", "gauge", "1 for the phase the server is in.", "phase"),
    _own("healthy", "gauge", "Whether /health answers 200."),
    _own("loaded_ratio", "gauge", "Share of the weights that is in memory."),
    _own("stalled_seconds", "gauge", "Time since the engine's last sign of life while work waits."),
    _own(
        "snapshot_age_seconds",
        "gauge",
        "Age of what the engine says of itself here; +Inf before it has said anything.",
    ),
    # Requests and connections.
    _own("connections", "gauge", "Open connections of clients."),
    _own("http_requests_in_progress", "gauge", "HTTP requests being answered."),
    _own("http_requests_total", "counter", "HTTP requests answered.", "method", "path", "status"),
    _own("http_request_seconds", "histogram", "From a request to the end of its answer.", "path"),
    _own("requests_in_progress", "gauge", "Generating requests being answered.", "endpoint"),
    _own(
        "requests_total",
        "counter",
        "Generating requests that ended: ok, refused, failed, left (by their client).",
        *("endpoint", "outcome"),
    ),
    _own(
        "refusals_total", "counter", "Generating requests refused, by the error's code.", "reason"
    ),
    _own("queue_requests", "gauge", "Requests in the queue."),
    _own("queue_requests_limit", "gauge", "Requests that the queue has places for."),
    _own("queue_prompt_tokens", "gauge", "Tokens of the prompts in the queue."),
    _own("queue_prompt_tokens_limit", "gauge", "Tokens that the queue has room for."),
    _own(
        "promised_wait_seconds",
        "histogram",
        "What refused requests were told to wait (Retry-After).",
    ),
    # Steps.
    _own("threads", "gauge", "Threads that compute."),
    _own("max_num_seqs", "gauge", "Requests that run together at most."),
    _own("max_model_len", "gauge", "Tokens of a prompt and its answer at most."),
    _own("steps_total", "counter", "Steps of the engine."),
    _own("busy_seconds_total", "counter", "Time spent in steps."),
    _own("step_rows_total", "counter", "Rows that steps computed: decode or prefill.", "kind"),
    _own("step_seconds", "histogram", "How long a step takes."),
    _own(
        "predicted_step_seconds_total",
        "counter",
        "Time that the steps of farthing_step_seconds were predicted to take, before each.",
    ),
    _own("step_prediction_ratio", "histogram", "Actual time of a step over the predicted."),
    # Memory.
    _own("weight_bytes", "gauge", "Bytes of weights that a step reads."),
    _own("weight_bytes_read_total", "counter", "Bytes of weights that steps have read."),
    _own("kv_bytes_read_total", "counter", "Bytes of the KV cache that steps have read."),
    _own(
        "read_bandwidth_bytes_per_second",
        "gauge",
        "Bytes of weights and KV cache that steps of the last minute read, by the time they took.",
    ),
    _own(
        "read_bandwidth_limit_bytes_per_second",
        "gauge",
        "What this machine's memory gave when the engine started.",
    ),
    _own("read_bandwidth_ratio", "gauge", "The share of that limit that steps reach."),
    _own("kv_blocks", "gauge", "Blocks of the KV cache: free, owned, cached.", "state"),
    _own("kv_block_tokens", "gauge", "Tokens of a block."),
    _own(
        "kv_tokens",
        "gauge",
        "Room that requests hold (reserved), and what is filled (stored).",
        "kind",
    ),
    _own("kv_restored_tokens", "gauge", "Tokens of the prefix cache that came from disk at start."),
    _own(
        "process_memory_bytes",
        "gauge",
        "Memory of the server and the engine: anonymous, file, swap.",
        *("process", "kind"),
    ),
    _own("process_page_faults_total", "counter", "Page faults: minor, major.", "process", "kind"),
    _own("process_cpu_seconds_total", "counter", "CPU time: user, system.", "process", "kind"),
    _own("process_threads", "gauge", "Threads.", "process"),
    _own("log_records_dropped_total", "counter", "Log records that are in no log."),
)
