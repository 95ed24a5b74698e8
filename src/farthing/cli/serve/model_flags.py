"""Flags of ``farthing serve``: the model, and how it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from farthing.cli.options import MODEL_HELP, Adapter, Batching, Kv, complete_model
from farthing.cli.serve.option import Names, flag
from farthing.cli.serve.spellings import MODEL_SPELLINGS, KvSpelling, variables
from farthing.program.kv_types import KV_DTYPES


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """Which model, and under which names."""

    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            envvar=variables(MODEL_SPELLINGS),
            show_envvar=False,
            help=MODEL_HELP + " Without it, the catalog's default.",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None
    served_model_name: Annotated[
        Names,
        flag(
            "--served-model-name",
            "--alias",
            "-a",
            metavar="NAME",
            help="The name clients know the model by; may be repeated, the first is answered with. "
            "Its own names are taken too.",
        ),
    ] = None
    adapter: Adapter = None


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """How it is run."""

    threads: Annotated[
        int | None,
        flag(
            *("--threads", "-t", "--threads-batch", "-tb"),
            metavar="N",
            min=1,
            max=1024,
            help="Threads to compute with; by default one per core this process may use.",
        ),
    ] = None
    max_model_len: Annotated[
        int | None,
        flag(
            *("--max-model-len", "--ctx-size", "-c"),
            metavar="TOKENS",
            min=1,
            help="Longest context of one request; by default the model's own, or what memory "
            "allows.",
        ),
    ] = None
    max_num_seqs: Annotated[
        int,
        flag(
            *("--max-num-seqs", "--parallel", "-np"),
            metavar="N",
            min=1,
            max=4096,
            shows=True,
            help="Answers at a time; more wait in the queue.",
        ),
    ] = 32
    max_num_batched_tokens: Annotated[
        int,
        flag(
            *("--max-num-batched-tokens", "--batch-size", "-b"),
            metavar="TOKENS",
            min=1,
            max=8192,
            shows=True,
            help="Tokens of one pass.",
        ),
    ] = 512
    max_prefill_chunk: Annotated[
        int | None,
        flag(
            *("--max-prefill-chunk", "--chunked-prefill-size"),
            metavar="TOKENS",
            min=1,
            max=8192,
            help="Tokens of prompts in a pass beside running streams: fewer let them wait less "
            "long; by default as many as a pass takes.",
        ),
    ] = None
    kv_cache_dtype: Annotated[
        KvSpelling,
        flag(
            *("--kv-cache-dtype", "--cache-type-k", "-ctk", "--cache-type-v", "-ctv"),
            metavar="|".join(KV_DTYPES),
            shows=True,
            help="Types in which keys and values are stored: int8 takes about half of fp16, k8v4 "
            "(int8 keys, int4 values) 0.4, int4 a quarter, with a loss that not every model bears. "
            "auto and f16 are fp16, q8_0 is int8, q4_0 is int4, f32 is fp32.",
        ),
    ] = "fp16"
    kv_cache_tokens: Annotated[
        int | None,
        flag(
            "--kv-cache-tokens",
            metavar="TOKENS",
            min=16,
            help="Room of the KV cache for all requests together; by default, for the longest "
            "context.",
        ),
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None,
        flag("--kv-cache-memory-bytes", metavar="BYTES", min=1, help="The same in bytes."),
    ] = None
    enable_prefix_caching: Annotated[
        bool,
        flag(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            help="Read only once what prompts have in common (the default), or every prompt whole.",
        ),
    ] = True
    prefix_cache: Annotated[
        str | None,
        flag(
            "--prefix-cache",
            metavar="DIR",
            help="Keep what was computed of prompts and answers in this folder when the server "
            "stops, and begin with what it has. It holds what was said.",
        ),
    ] = None
    weights: Annotated[
        Literal["mmap", "copy"],
        flag(
            "--weights",
            shows=True,
            help="Use a packed directory's weights where they lie, or copy them into memory.",
        ),
    ] = "mmap"
    fair_share: Annotated[
        bool,
        flag(
            "--fair-share/--no-fair-share",
            help="Give users equal shares of a busy engine (the default), or serve in order of "
            "arrival. A user is an API key, or without keys a request's `user`.",
        ),
    ] = True
    batching: Batching = "continuous"
    kv: Kv = "paged"
    no_cache: Annotated[
        bool,
        flag("--no-cache", help="Recompute the whole context for every token (slow)."),
    ] = False
