"""``farthing bench requests``: the requests of many users, on one engine and on others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farthing.cli.bench.options import Output, PeerModel, Rounds
from farthing.cli.options import Json, KvCacheDtype, ModelArgument, Threads, Weights


def requests(
    model: ModelArgument,
    trace: Annotated[
        Path,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Requests, a JSON list or JSON lines with prompt and max_tokens each.",
        ),
    ],
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=512, help="Requests that run at a time.")
    ] = 8,
    systems: Annotated[
        str,
        typer.Option(
            "--systems",
            metavar="NAME,...",
            help="Of continuous, static and contiguous: batching, and a cache of whole slots; and "
            "server: farthing serve, over HTTP. Ratios are to the last, or to llama.cpp.",
        ),
    ] = "continuous,static",
    arrivals: Annotated[
        str, typer.Option("--arrivals", metavar="NAME,...", help="Of all (at once) and poisson.")
    ] = "all,poisson",
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=1e-6,
            metavar="REQUESTS/S",
            help="Of the Poisson process; by default --load times a capacity.",
            show_default=False,
        ),
    ] = None,
    load: Annotated[
        float,
        typer.Option(
            "--load",
            min=1e-3,
            metavar="X",
            help="Share of the capacity of llama.cpp, or of the first system without it: of the "
            "requests a second that it answers when all come at once.",
        ),
    ] = 0.8,
    max_prefill_chunk: Annotated[
        int | None,
        typer.Option(
            "--max-prefill-chunk",
            min=1,
            metavar="TOKENS",
            help="Most tokens of prompts in a pass beside running streams.",
            show_default=False,
        ),
    ] = None,
    llama_cpp: Annotated[
        str | None,
        typer.Option(
            "--llama-cpp",
            metavar="DIR|PROGRAM",
            help="llama-server, or the folder of a llama.cpp build that has it: plays too.",
            show_default=False,
        ),
    ] = None,
    peer_model: PeerModel = None,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    json: Json = False,
    output: Output = None,
) -> None:
    """A trace of requests, played in real time: throughput, first tokens, latency.

    Systems take turns. Every answer is as long as the trace says, unless a request has ignore_eos
    false.
    """
    from farthing.bench.compare import peer_file
    from farthing.bench.llama_cpp import find_program
    from farthing.bench.llama_server import LlamaServer, server_system
    from farthing.bench.records import CpuTime, append, model_name, run_facts
    from farthing.bench.trace import longest_sequence, read_trace
    from farthing.bench.trace_engine import engine_systems, system_names
    from farthing.bench.trace_rounds import play_rounds, wanted_arrivals
    from farthing.bench.trace_server import SERVER, FarthingServer, farthing_system
    from farthing.cli.bench.session import open_folder
    from farthing.cli.bench.tables import print_played, say_where
    from farthing.cli.loading import LoadOptions
    from farthing.cli.loading import load as load_model
    from farthing.cli.terminal import dim, write_json
    from farthing.engine.block_pool import BLOCK_TOKENS

    asked = read_trace(trace)
    kinds = wanted_arrivals(arrivals)
    names = system_names(systems, SERVER)
    program = (
        None if llama_cpp is None else find_program(Path(llama_cpp).expanduser(), "llama-server")
    )
    folder = open_folder(output)
    llm = load_model(model, LoadOptions(threads, kv_cache_dtype, weights=weights))
    longest = longest_sequence(asked, llm.tokenizer)
    engines = [name for name in names if name != SERVER]
    played_by = engine_systems(llm, engines, slots, longest, max_prefill_chunk)
    if SERVER in names:
        own = FarthingServer(
            llm.path,
            slots,
            longest,
            llm.runner.executor.num_threads,
            kv_cache_dtype,
            llm.runner.num_blocks * BLOCK_TOKENS,
            max_prefill_chunk,
        )
        played_by.append(farthing_system(own))
    if program is not None:
        file = peer_file(llm.path, None if peer_model is None else Path(peer_model).expanduser())
        server = LlamaServer(
            program, file, slots, longest, llm.runner.executor.num_threads, kv_cache_dtype
        )
        played_by.append(server_system(server))
    before = CpuTime.now()
    played = play_rounds(
        played_by,
        asked,
        kinds,
        rounds=rounds,
        rate=rate,
        load=load,
        capacity_of=played_by[-1 if program is not None else 0].name,
        progress=dim,
    )
    facts = {
        "model": model_name(model),
        "slots": slots,
        "threads": llm.runner.executor.num_threads,
        "kv_cache_dtype": kv_cache_dtype,
        "load": load if rate is None else None,
        **run_facts(before),
    }
    last = {each.arrivals: each for each in played}  # of each kind, what it is compared with
    records = [each.record(facts, last[each.arrivals]) for each in played]
    if json:
        write_json(records)
    else:
        for kind in kinds:
            print_played([each for each in played if each.arrivals == kind])
    say_where(len(records), append(records, folder))
