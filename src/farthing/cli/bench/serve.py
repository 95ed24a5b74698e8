"""``farthing bench serve``: a load on a server of the OpenAI API, and what its users see."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

from farthing.cli.bench import serve_options as opt
from farthing.cli.bench import serve_result_options as kept
from farthing.cli.options import Json

EXIT_FAILED = 1  # no request was answered, or a text differs


def serve(
    backend: opt.Backend = "openai",
    base_url: opt.BaseUrl = None,
    host: opt.Host = "127.0.0.1",
    port: opt.Port = 8000,
    endpoint: opt.Endpoint = None,
    model: opt.Model = None,
    served_model_name: opt.ServedModelName = None,
    tokenizer: opt.Tokenizer = None,
    api_key: opt.ApiKey = None,
    header: opt.Header = None,
    insecure: opt.Insecure = False,
    dataset_name: opt.DatasetNameOption = "random",
    dataset_path: opt.DatasetPath = None,
    num_prompts: opt.NumPrompts = None,
    no_oversample: opt.NoOversample = False,
    input_len: opt.InputLen = None,
    output_len: opt.OutputLen = None,
    random_input_len: opt.RandomInputLen = 1024,
    random_output_len: opt.RandomOutputLen = 128,
    random_range_ratio: opt.RandomRangeRatio = 0.0,
    random_prefix_len: opt.RandomPrefixLen = 0,
    sharegpt_output_len: opt.SharegptOutputLen = None,
    custom_output_len: opt.CustomOutputLen = None,
    prefix_repetition_prefix_len: opt.PrefixLen = 256,
    prefix_repetition_suffix_len: opt.SuffixLen = 256,
    prefix_repetition_num_prefixes: opt.NumPrefixes = 10,
    prefix_repetition_output_len: opt.PrefixOutputLen = 128,
    request_rate: opt.RequestRate = math.inf,
    burstiness: opt.Burstiness = 1.0,
    burst_size: opt.BurstSize = None,
    burst_interval: opt.BurstInterval = None,
    ramp_up_strategy: opt.RampUpStrategy = None,
    ramp_up_start_rps: opt.RampUpStart = None,
    ramp_up_end_rps: opt.RampUpEnd = None,
    self_timed: opt.SelfTimed = False,
    max_concurrency: opt.MaxConcurrency = None,
    num_warmups: opt.NumWarmups = 0,
    ignore_eos: opt.IgnoreEos = False,
    logprobs: opt.Logprobs = None,
    temperature: opt.Sampling = None,
    top_p: opt.Sampling = None,
    top_k: opt.TopK = None,
    min_p: opt.Sampling = None,
    frequency_penalty: opt.Sampling = None,
    presence_penalty: opt.Sampling = None,
    repetition_penalty: opt.Sampling = None,
    extra_body: opt.ExtraBody = None,
    request_id_prefix: opt.RequestIdPrefix = "bench-",
    seed: opt.Seed = 0,
    percentile_metrics: kept.PercentileMetrics = "ttft,tpot,itl,e2el",
    metric_percentiles: kept.MetricPercentiles = "99",
    goodput: kept.Goodput = None,
    ready_check_timeout_sec: opt.ReadyTimeout = 0.0,
    request_timeout_sec: opt.RequestTimeout = 21600.0,
    retries: opt.Retries = 0,
    retry_poll: opt.RetryPoll = None,
    check_text: opt.CheckText = False,
    save_result: kept.SaveResult = False,
    save_detailed: kept.SaveDetailed = False,
    append_result: kept.AppendResult = False,
    result_dir: kept.ResultDir = None,
    result_filename: kept.ResultFilename = None,
    label: kept.Label = None,
    metadata: kept.Metadata = None,
    plot_timeline: kept.PlotTimeline = False,
    timeline_itl_thresholds: kept.TimelineItl = "25,50",
    disable_tqdm: opt.DisableTqdm = False,
    json: Json = False,
) -> None:
    """A load on a server of the OpenAI API: throughput, time to first tokens, gaps, refusals.

    Options, figures and the result's file are those of vLLM's tool of this name.
    """
    from farthing.bench.serving.arrivals import Arrivals
    from farthing.bench.serving.random_prompts import PrefixLengths, RandomLengths
    from farthing.bench.serving.refusals import RetryPolicy
    from farthing.bench.serving.report import error_lines, report_lines
    from farthing.bench.serving.result import check_metadata, result_path, save
    from farthing.bench.serving.run import serve_benchmark
    from farthing.bench.serving.settings import Dataset, ServeSettings
    from farthing.bench.serving.timeline import check_drawing, draw_timeline, itl_thresholds
    from farthing.cli.bench.serve_progress import ServeProgress
    from farthing.cli.bench.session import open_folder
    from farthing.cli.errors import EXIT_INTERRUPTED, report
    from farthing.cli.terminal import console, dim, write_json

    sampling: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "repetition_penalty": repetition_penalty,
    }
    settings = ServeSettings(
        base_url=base_url if base_url is not None else _url(host, port),
        backend=backend,
        endpoint=endpoint,
        model=served_model_name or model,
        label=label,
        tokenizer=None if tokenizer is None else _model_here(tokenizer),
        tokenizer_name=tokenizer,
        api_key=api_key,
        headers=opt.pairs("--header", header, "="),
        verify_tls=not insecure,
        dataset=Dataset(
            name=dataset_name,
            path=dataset_path,
            random=RandomLengths(
                input_len or random_input_len,
                output_len or random_output_len,
                random_range_ratio,
                random_prefix_len,
            ),
            prefixes=PrefixLengths(
                prefix_repetition_prefix_len,
                prefix_repetition_suffix_len,
                prefix_repetition_num_prefixes,
                output_len or prefix_repetition_output_len,
            ),
            output_len=output_len
            or (custom_output_len if dataset_name == "custom" else sharegpt_output_len),
            oversample=not no_oversample,
        ),
        num_prompts=num_prompts,
        arrivals=Arrivals(
            rate=request_rate,
            burstiness=burstiness,
            ramp_up=ramp_up_strategy,
            start_rate=ramp_up_start_rps,
            end_rate=ramp_up_end_rps,
            burst_size=burst_size,
            burst_interval=burst_interval,
        ),
        self_timed=self_timed,
        max_concurrency=max_concurrency,
        num_warmups=num_warmups,
        ignore_eos=ignore_eos,
        logprobs=logprobs,
        extra_body={name: value for name, value in sampling.items() if value is not None}
        | opt.extra_fields(extra_body),
        request_id_prefix=request_id_prefix,
        seed=seed,
        metrics=tuple(name.strip() for name in percentile_metrics.split(",")),
        percentiles=opt.percentiles(metric_percentiles),
        goodput=opt.objectives(goodput),
        ready_timeout=ready_check_timeout_sec,
        request_timeout=request_timeout_sec,
        retries=RetryPolicy(retries, retry_poll),
        check_text=check_text,
    )
    notes = opt.pairs("--metadata", metadata, "=")
    check_metadata(notes)
    thresholds = itl_thresholds(timeline_itl_thresholds)
    if plot_timeline:
        check_drawing()
    if save_result or append_result or plot_timeline:
        open_folder(str(result_dir or "."))
    with ServeProgress(silent=disable_tqdm) as progress:
        result = serve_benchmark(settings, progress)
    body = result.as_json(detailed=save_detailed, metadata=notes)
    path = result_path(settings, result.model, result.date, result_dir, result_filename)
    for line in error_lines(result):
        report(line, kind="warning")
    if json:
        write_json(body)
    else:
        console().print("\n".join(report_lines(result)))
    if save_result or append_result:
        save(body, path, append=append_result)
        dim(f"Result in {path}")
    if plot_timeline:
        picture = path.with_suffix(".timeline.png")
        draw_timeline(result.requests, result.began, thresholds, picture)
        dim(f"Timeline in {picture}")
    if result.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.metrics.completed == 0 or result.text_differs:
        raise typer.Exit(EXIT_FAILED)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _model_here(name: str) -> Path:
    from farthing import catalog

    return catalog.resolve(name, offline=True)
