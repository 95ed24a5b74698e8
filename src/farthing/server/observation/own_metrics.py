"""What is ours to tell: the machine, the memory it reads, the queue, the server."""

from __future__ import annotations

import os

from farthing.engine.metrics import EngineMetrics
from farthing.server.life_cycle import Phase
from farthing.server.observation.metric_page import MetricPage
from farthing.server.observation.metric_table import OWN_METRICS
from farthing.server.observation.processes import process_usage
from farthing.server.observation.sources import Moment
from farthing.server.seam.messages import EngineInfo


def own_page(moment: Moment) -> MetricPage:
    """All of :data:`OWN_METRICS`; what is not known yet is left out. Reads ``/proc``."""
    page = MetricPage(OWN_METRICS)
    _server(page, moment)
    _requests(page, moment)
    _steps(page, moment)
    _kv(page, moment)
    if moment.info is not None:
        _engine(page, moment, moment.info)
    for process, pid in (("server", os.getpid()), ("engine", moment.engine_pid)):
        if pid is not None:
            _process(page, process, pid)
    return page


def _server(page: MetricPage, moment: Moment) -> None:
    for phase in Phase:
        page.set("farthing_phase", phase is moment.phase, phase=phase.value)
    page.set("farthing_healthy", moment.healthy)
    page.set("farthing_loaded_ratio", moment.loaded)
    page.set("farthing_stalled_seconds", moment.stalled)
    page.set("farthing_snapshot_age_seconds", moment.snapshot_age)
    page.set("farthing_connections", moment.connections)
    page.set("farthing_log_records_dropped_total", moment.dropped_log_records)


def _requests(page: MetricPage, moment: Moment) -> None:
    http, requests = moment.http, moment.requests
    page.set("farthing_http_requests_in_progress", http.in_progress)
    for (method, path, status), count in http.requests.items():
        page.set(
            "farthing_http_requests_total", count, method=method, path=path, status=str(status)
        )
    for path, seconds in http.seconds.items():
        page.histogram("farthing_http_request_seconds", seconds, path=path)
    for endpoint, count in requests.in_progress.items():
        page.set("farthing_requests_in_progress", count, endpoint=endpoint)
    for (endpoint, outcome), count in requests.ended.items():
        page.set("farthing_requests_total", count, endpoint=endpoint, outcome=outcome)
    for reason, count in requests.refusals.items():
        page.set("farthing_refusals_total", count, reason=reason)
    page.set("farthing_queue_requests", moment.queue.waiting_requests)
    page.set("farthing_queue_prompt_tokens", moment.queue.waiting_tokens)
    page.histogram("farthing_promised_wait_seconds", moment.queue.promised)
    if (limits := moment.queue_limits) is not None:
        page.set("farthing_queue_requests_limit", limits.max_requests)
        page.set("farthing_queue_prompt_tokens_limit", limits.max_prompt_tokens)


def _steps(page: MetricPage, moment: Moment) -> None:
    metrics: EngineMetrics = moment.metrics
    page.set("farthing_steps_total", metrics.steps)
    page.set("farthing_busy_seconds_total", metrics.step_seconds)
    page.set("farthing_step_rows_total", metrics.decode_rows, kind="decode")
    page.set("farthing_step_rows_total", metrics.prefill_rows, kind="prefill")
    page.histogram("farthing_step_seconds", moment.steps.seconds)
    page.set("farthing_predicted_step_seconds_total", moment.steps.predicted_seconds)
    page.histogram("farthing_step_prediction_ratio", moment.steps.ratio)


def _kv(page: MetricPage, moment: Moment) -> None:
    kv = moment.load.kv
    free = kv.num_blocks - kv.held_blocks - kv.cached_blocks
    for state, count in (
        ("free", free),
        ("owned", kv.held_blocks),
        ("cached", kv.cached_blocks),
    ):
        page.set("farthing_kv_blocks", count, state=state)
    page.set("farthing_kv_tokens", kv.reserved_tokens, kind="reserved")
    page.set("farthing_kv_tokens", kv.stored_tokens, kind="stored")


def _engine(page: MetricPage, moment: Moment, info: EngineInfo) -> None:
    page.set(
        "farthing_build_info",
        1,
        version=moment.version,
        isa=info.isa,
        fingerprint=info.fingerprint,
        kv_cache_dtype=info.kv_cache_dtype,
        model_name=moment.model,
    )
    page.set("farthing_threads", info.num_threads)
    page.set("farthing_max_num_seqs", info.max_num_seqs)
    page.set("farthing_max_model_len", info.max_model_len)
    page.set("farthing_weight_bytes", info.weight_bytes)
    page.set("farthing_kv_block_tokens", info.block_tokens)
    page.set("farthing_kv_restored_tokens", info.restored_tokens)
    if moment.read is not None:
        page.set("farthing_weight_bytes_read_total", moment.read.weight_bytes)
        page.set("farthing_kv_bytes_read_total", moment.read.kv_bytes)
        page.set("farthing_read_bandwidth_bytes_per_second", moment.read_rate)
    if info.read_bandwidth > 0:
        page.set("farthing_read_bandwidth_limit_bytes_per_second", info.read_bandwidth)
        page.set("farthing_read_bandwidth_ratio", moment.read_rate / info.read_bandwidth)


def _process(page: MetricPage, process: str, pid: int) -> None:
    usage = process_usage(pid)
    if usage is None:
        return
    for kind, nbytes in usage.memory.items():
        page.set("farthing_process_memory_bytes", nbytes, process=process, kind=kind)
    for kind, count in usage.page_faults.items():
        page.set("farthing_process_page_faults_total", count, process=process, kind=kind)
    for kind, seconds in usage.cpu_seconds.items():
        page.set("farthing_process_cpu_seconds_total", seconds, process=process, kind=kind)
    page.set("farthing_process_threads", usage.threads, process=process)
