"""``farthing batch``: a file of requests answered into a file of responses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.options import (
    Adapter,
    Batching,
    Json,
    Kv,
    KvCacheDtype,
    KvCacheMemory,
    KvCacheTokens,
    MaxModelLen,
    MaxNumSeqs,
    ModelOption,
    NoCache,
    NoPrefixCaching,
    PrefixCache,
    Threads,
    Weights,
)

if TYPE_CHECKING:
    from farthing.batch.run import Counts


def batch(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", help="Requests in OpenAI's batch format, one JSON object a line."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="Where the responses go, a line each; what is in it already is not asked again.",
        ),
    ],
    model: ModelOption = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name",
            metavar="NAME",
            help="A name that requests may ask for too, such as the one they were written for; "
            "may be repeated.",
            show_default=False,
        ),
    ] = None,
    retry_errors: Annotated[
        bool,
        typer.Option(
            "--retry-errors", help="Ask again what an earlier run has answered with an error."
        ),
    ] = False,
    max_num_seqs: MaxNumSeqs = 32,
    adapter: Adapter = None,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    max_model_len: MaxModelLen = None,
    prefix_cache: PrefixCache = None,
    kv_cache_tokens: KvCacheTokens = None,
    kv_cache_memory_bytes: KvCacheMemory = None,
    batching: Batching = "continuous",
    kv: Kv = "paged",
    no_cache: NoCache = False,
    no_prefix_caching: NoPrefixCaching = False,
    json: Json = False,
) -> None:
    """Answer a file of requests.

    Each line of IN is {"custom_id": ..., "method": "POST", "url": ..., "body": {...}}; url is
    /v1/chat/completions or /v1/completions. A line that cannot be answered gets one that says why.
    Interrupted, the same command goes on where it stopped.
    """
    from farthing.batch.lines import count_lines
    from farthing.batch.output import open_output
    from farthing.cli.loading import LoadOptions, load
    from farthing.cli.model_names import model_names
    from farthing.openai_protocol.names import ModelNames

    _check_paths(source, target)
    with open_output(target, retry_errors=retry_errors) as output:
        from farthing.batch.run import BatchRun
        from farthing.catalog import DEFAULT_MODEL
        from farthing.cli.batch_progress import BatchProgress, summary
        from farthing.cli.stop_signals import StoppedError, StopSignals
        from farthing.cli.terminal import dim

        total = count_lines(source)
        name = model or DEFAULT_MODEL
        options = LoadOptions(
            threads,
            kv_cache_dtype,
            max_model_len,
            not no_cache,
            adapter,
            weights,
            max_num_seqs=max_num_seqs,
            batching=batching,
            kv=kv,
            prefix_caching=not no_prefix_caching,
            kv_cache_tokens=kv_cache_tokens,
            kv_cache_memory_bytes=kv_cache_memory_bytes,
            prefix_cache=prefix_cache,
        )
        llm = load(name, options)
        if found := output.answered + output.failed:
            errors = f", {output.failed:,} of them errors" if output.failed else ""
            dim(f"{target} has {found:,} lines already{errors}; they are kept")
        with llm, StopSignals() as signals, BatchProgress(total) as progress:

            def watch(counts: Counts) -> None:
                progress.update(counts)
                signals.check()

            names = ModelNames([*model_names(name, llm.path, served_model_name or []), name])
            run = BatchRun(llm, names, output, watch=watch, note=progress.note)
            stopped: StoppedError | None = None
            try:
                run.run(source)
            except StoppedError as stop:
                stopped = stop
            kv_waste = llm.engine.metrics.kv_waste
    if json:
        _write_json(name, run.counts, kv_waste)
    else:
        dim(summary(run.counts, kv_waste if kv == "contiguous" else None))
    if stopped is not None:
        dim(
            f"Stopped by {stopped} after {run.counts.finished:,} of {total:,} lines; "
            "the same command goes on from there"
        )
        raise typer.Exit(stopped.status)


def _check_paths(source: Path, target: Path) -> None:
    """Refuses an input that is not a file, and an output that is the input."""
    from farthing.errors import InvalidParameterError

    if not source.exists():
        raise InvalidParameterError(f"{source}: there is no such file")
    if not source.is_file():
        raise InvalidParameterError(f"{source}: the input must be a file")
    if target.exists() and target.samefile(source):
        raise InvalidParameterError(f"{target}: the output is the input; give it another name")


def _write_json(model: str, counts: Counts, kv_waste: float) -> None:
    from farthing.cli.terminal import write_json

    write_json(
        {
            "model": model,
            "requests": counts.answered + counts.errors,
            "errors": counts.errors,
            "earlier": counts.earlier,
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "completion_tokens": counts.completion_tokens,
            "kv_waste": kv_waste,
            "seconds": counts.seconds,
            "tokens_per_second": counts.tokens_per_second,
        }
    )
