"""From flags to a running server."""

from __future__ import annotations

import socket
from math import inf
from pathlib import Path

from farthing.cli.model_names import model_names
from farthing.cli.serve.model_flags import EngineFlags, ModelFlags
from farthing.cli.serve.network_flags import AccessFlags, NetworkFlags
from farthing.cli.serve.operation_flags import LifeFlags, ObservationFlags, QueueFlags
from farthing.cli.serve.spellings import KV_TYPES
from farthing.errors import InvalidParameterError
from farthing.server.access.keys import ApiKeys
from farthing.server.access.rules import AccessRules, is_loopback
from farthing.server.admission.limits import RateLimits
from farthing.server.engine_settings import EngineSettings
from farthing.server.http.limits import HttpLimits
from farthing.server.http.tls import ClientCertificates, TlsFiles
from farthing.server.listening import bind, bind_unix
from farthing.server.observation.logs import LogSettings
from farthing.server.settings import ServerSettings


def start(
    model: ModelFlags,
    engine: EngineFlags,
    network: NetworkFlags,
    access: AccessFlags,
    queue: QueueFlags,
    life: LifeFlags,
    observation: ObservationFlags,
) -> int:
    """Serves until told to stop; returns the exit status.

    All flags are checked, and the port is bound, before a model is fetched; who asks while that
    goes on is told so.
    """
    from farthing import machine
    from farthing.catalog import DEFAULT_MODEL
    from farthing.cli.loading import LoadBar
    from farthing.cli.serve.model_fetch import ModelFetch
    from farthing.server.run import run

    machine.active_isa()  # refuses an impossible FARTHING_ISA
    name = model.model or DEFAULT_MODEL
    rules = _access_rules(access, network)
    tls = _tls(network)
    limits = _http_limits(network)
    engine_settings = _engine_settings(Path(name), model, engine)  # refused now if it is wrong
    further = model.served_model_name or []
    sockets = _sockets(network)
    try:
        settings = ServerSettings(
            engine=engine_settings,
            names=model_names(name, None, further),
            host=network.host,
            port=network.port,
            uds=network.uds,
            tls=tls,
            http=limits,
            access=rules,
            max_num_queued_reqs=queue.max_num_queued_reqs,
            max_num_queued_tokens=queue.max_num_queued_tokens,
            rates=RateLimits(access.requests_per_minute, access.max_concurrent_requests),
            request_timeout=None if network.request_timeout == inf else network.request_timeout,
            ping_interval=network.sse_keep_alive_interval,
            shutdown_timeout=life.shutdown_timeout,
            health_timeout=life.health_timeout,
            watchdog_timeout=life.watchdog_timeout,
            logs=LogSettings(
                format=observation.log_format,
                level=observation.log_level,
                access=not observation.disable_access_log,
                requests=observation.enable_log_requests or observation.log_prompts,
                prompts=observation.log_prompts,
            ),
            metrics_compat=observation.metrics_compat,
            otlp_traces_endpoint=observation.otlp_traces_endpoint,
            debug_endpoints=observation.debug_endpoints,
        )
        fetch = ModelFetch(name, further)
        bar = LoadBar(name)

        def progress(done: int, total: int) -> None:
            bar.advance(done, total) if done < total else bar.finish()

        try:
            return run(settings, sockets, fetch=fetch, progress=progress)
        finally:
            fetch.close()
            bar.finish()
    finally:
        for each in sockets:
            each.close()
        if network.uds is not None:
            Path(network.uds).unlink(missing_ok=True)


def _engine_settings(path: Path, model: ModelFlags, engine: EngineFlags) -> EngineSettings:
    return EngineSettings(
        model=path,
        adapter=None if model.adapter is None else Path(model.adapter),
        weights=engine.weights,
        kv_cache_dtype=KV_TYPES[engine.kv_cache_dtype],
        max_model_len=engine.max_model_len,
        num_threads=engine.threads,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_prefill_chunk=engine.max_prefill_chunk,
        kv_cache_tokens=engine.kv_cache_tokens,
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        enable_prefix_caching=engine.enable_prefix_caching,
        prefix_cache=None if engine.prefix_cache is None else Path(engine.prefix_cache),
        fair_share=engine.fair_share,
        batching=engine.batching,
        kv=engine.kv,
        use_cache=not engine.no_cache,
    )


def _access_rules(access: AccessFlags, network: NetworkFlags) -> AccessRules:
    file = None if access.api_key_file is None else Path(access.api_key_file)
    return AccessRules(
        keys=ApiKeys.from_sources(access.api_key or (), file),
        loopback=network.uds is not None or is_loopback(network.host),
        allowed_hosts=tuple(access.allowed_hosts or ()),
        allowed_origins=tuple(access.allowed_origins or ()),
        allowed_methods=tuple(access.allowed_methods or ("*",)),
        allowed_headers=tuple(access.allowed_headers or ("*",)),
        allow_credentials=access.allow_credentials,
    )


def _http_limits(network: NetworkFlags) -> HttpLimits:
    return HttpLimits(
        max_body_bytes=network.max_body_bytes,
        header_timeout=network.header_timeout,
        body_timeout=network.body_timeout,
        keep_alive_timeout=network.keep_alive_timeout,
        write_timeout=network.write_timeout,
        max_connections=network.max_connections,
    )


def _tls(network: NetworkFlags) -> TlsFiles | None:
    """Checked at once: a wrong file is told before a model is loaded."""
    key, authorities = network.ssl_keyfile, network.ssl_ca_certs
    if network.ssl_certfile is None:
        if key is not None or authorities is not None:
            raise InvalidParameterError("--ssl-certfile is needed for HTTPS")
        return None
    files = TlsFiles(
        certfile=Path(network.ssl_certfile),
        keyfile=None if key is None else Path(key),
        ca_certs=None if authorities is None else Path(authorities),
        client_certificates=(
            ClientCertificates.NONE if authorities is None else ClientCertificates.REQUIRED
        ),
    )
    files.context()
    return files


def _sockets(network: NetworkFlags) -> list[socket.socket]:
    if network.uds is not None:
        return bind_unix(network.uds)
    return bind(network.host, network.port)
