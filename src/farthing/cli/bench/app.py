"""The verbs of ``farthing bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.bench.options import (
    Batches,
    Context,
    Contexts,
    OptionalModel,
    Output,
    PeerModel,
    Rounds,
    Scheme,
    Shape,
    Tokens,
    counts,
)
from farthing.cli.bench.requests import requests
from farthing.cli.bench.serve import serve
from farthing.cli.bench.serve_options import SeveralValuesCommand
from farthing.cli.options import Json, KvCacheDtype, ModelArgument, Threads, Weights
from farthing.program.kv_types import KvDtype

if TYPE_CHECKING:
    from farthing.cli.bench.session import Session
    from farthing.program.weights import WeightPlacement

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed as a share of this machine's limits, and beside llama.cpp.",
)


@app.command("kernels")
def kernels(
    scheme: Annotated[
        str, typer.Option("--scheme", metavar="NAME,...", help="Schemes of the matrices.")
    ] = "w4g32,w4g64,w4g128,w8g32",
    rows: Annotated[
        str, typer.Option("--rows", metavar="N,...", help="Rows of activations.")
    ] = "1,2,4,8,16,32,256",
    shape_matrix: Annotated[
        list[str] | None,
        typer.Option(
            "--shape-matrix",
            metavar="N,K",
            help="Outputs and inputs of a matrix; may be repeated. 4864,896 and 896,4864 if none.",
            show_default=False,
        ),
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention/--no-attention", help="Measure attention too.")
    ] = True,
    context: Contexts = "1024,4096",
    tokens: Tokens = 512,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    json: Json = False,
    output: Output = None,
) -> None:
    """Matrix products and attention alone, with one thread and with all.

    Of each matrix there are so many that they come from memory, not from a cache.
    """
    from farthing.bench.kernels import SMALLEST_QWEN, attention_cases, make_products, product_cases
    from farthing.bench.random_weights import packed_bytes, served_scheme

    schemes = [name.strip() for name in scheme.split(",")]
    row_counts = counts("--rows", rows, most=8192)
    shapes = [_matrix_shape(text) for text in shape_matrix or ("4864,896", "896,4864")]
    contexts = counts("--context", context, least=0)
    for name in schemes:  # all are refused before one is measured
        for outputs, inputs in shapes:
            packed_bytes(served_scheme(name), outputs, inputs)
    session = _session("kernels", threads, rounds, json, output)
    for name in schemes:
        for outputs, inputs in shapes:
            products = make_products(name, outputs, inputs)
            for count in session.thread_counts:
                cases = product_cases(products, row_counts, count)
                title = f"{name}, {inputs}→{outputs}, {products.count} matrices from memory"
                session.measure(title, cases, count)
    for count in session.thread_counts:
        if count > 1:
            session.measure_barrier(count)
    if attention:
        for count in session.thread_counts:
            cases = attention_cases(SMALLEST_QWEN, contexts, [tokens], count, kv_cache_dtype)
            title = "Attention of Qwen2.5 0.5B, 24 layers"
            session.measure(title, cases, count, {"kv_cache_dtype": kv_cache_dtype})
    session.finish()


def _matrix_shape(text: str) -> tuple[int, int]:
    from farthing.bench.shapes import whole_number
    from farthing.errors import InvalidParameterError

    most = 1 << 20
    match [whole_number(part.strip(), 1, most) for part in text.split(",")]:
        case [int(outputs), int(inputs)]:
            return outputs, inputs
    raise InvalidParameterError(
        f"--shape-matrix {text!r}: must be outputs and inputs from 1 to {most}, such as 4864,896"
    )


@app.command("prefill")
def prefill(
    model: OptionalModel = None,
    tokens: Tokens = 512,
    shape: Shape = None,
    scheme: Scheme = None,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    json: Json = False,
    output: Output = None,
) -> None:
    """A prompt, and of its passes the matrix products alone."""
    from farthing.bench.steps import prefill_cases
    from farthing.bench.target import Needs

    session = _session("prefill", threads, rounds, json, output)
    target = session.target(model, shape, scheme, Needs(1, tokens + 1), kv_cache_dtype, weights)
    session.measure_target(target, prefill_cases(target, tokens))
    session.finish()


@app.command("decode")
def decode(
    model: OptionalModel = None,
    context: Context = 64,
    shape: Shape = None,
    scheme: Scheme = None,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    json: Json = False,
    output: Output = None,
) -> None:
    """One sequence's next token: a pass, its matrix products, and the whole way through LLM."""
    session = _session("decode", threads, rounds, json, output)
    _decode(session, model, shape, scheme, kv_cache_dtype, weights, [1], [context])


@app.command("batch")
def batch(
    model: OptionalModel = None,
    batch: Batches = "1,2,4,8,16,32",
    context: Context = 64,
    shape: Shape = None,
    scheme: Scheme = None,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    json: Json = False,
    output: Output = None,
) -> None:
    """The next token of several sequences together."""
    sizes = counts("--batch", batch, most=512)
    session = _session("batch", threads, rounds, json, output)
    _decode(session, model, shape, scheme, kv_cache_dtype, weights, sizes, [context])


@app.command("context")
def context(
    model: OptionalModel = None,
    context: Contexts = "16,1024,4096",
    shape: Shape = None,
    scheme: Scheme = None,
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    weights: Weights = "mmap",
    json: Json = False,
    output: Output = None,
) -> None:
    """One sequence's next token after short and long contexts."""
    lengths = counts("--context", context, least=0)
    session = _session("context", threads, rounds, json, output)
    _decode(session, model, shape, scheme, kv_cache_dtype, weights, [1], lengths, through_llm=False)


def _decode(
    session: Session,
    model: str | None,
    shape: str | None,
    scheme: str | None,
    kv_cache_dtype: KvDtype,
    weights: WeightPlacement,
    sizes: list[int],
    contexts: list[int],
    *,
    through_llm: bool = True,
) -> None:
    from farthing.bench.steps import NEW_TOKENS, PROMPT_TOKENS, decode_cases, llm_case
    from farthing.bench.target import Needs

    longest = max([PROMPT_TOKENS + NEW_TOKENS + 1, *(c + 1 for c in contexts)])
    needs = Needs(max(sizes), longest, rows=max(512, PROMPT_TOKENS * max(sizes)))
    target = session.target(model, shape, scheme, needs, kv_cache_dtype, weights)
    cases = []
    for size in sizes:
        for length in contexts:
            cases += decode_cases(target, size, length)
        if through_llm and target.llm is not None:
            cases.append(llm_case(target, size))
    session.measure_target(target, cases)
    session.finish()


@app.command("compare")
def compare(
    model: ModelArgument,
    llama_cpp: Annotated[
        str,
        typer.Option(
            "--llama-cpp",
            metavar="DIR|PROGRAM",
            help="llama-bench, or the folder of a llama.cpp build that has it.",
        ),
    ],
    peer_model: PeerModel = None,
    phases: Annotated[
        str | None,
        typer.Option(
            "--phases",
            metavar="NAME,...",
            help="Of prefill, decode and batch; by default all that llama.cpp's build can do.",
            show_default=False,
        ),
    ] = None,
    tokens: Tokens = 512,
    batch: Batches = "8,16,32",
    threads: Threads = None,
    rounds: Rounds = 5,
    kv_cache_dtype: KvCacheDtype = "fp16",
    json: Json = False,
    output: Output = None,
) -> None:
    """Farthing and llama.cpp in turns on the same file, each turn a new process: ratios."""
    from dataclasses import replace

    from farthing import machine
    from farthing.bench.compare import compare, peer_file, wanted_phases
    from farthing.bench.llama_cpp import LlamaCpp
    from farthing.bench.records import CpuTime, append, run_facts
    from farthing.bench.turn import Turn
    from farthing.cli.bench.session import open_folder
    from farthing.cli.bench.tables import print_comparisons, say_where
    from farthing.cli.download import fetch
    from farthing.cli.terminal import dim, write_json

    peer = LlamaCpp.find(Path(llama_cpp).expanduser())
    sizes = tuple(counts("--batch", batch, most=512))
    chosen = wanted_phases(phases, peer)
    machine.active_isa()
    path = fetch(model)
    theirs = peer_file(path, None if peer_model is None else Path(peer_model).expanduser())
    folder = open_folder(output)
    turns = []
    for phase in chosen:
        ours = Turn(
            model=str(path),
            phase=phase,
            threads=threads or machine.default_threads(),
            kv_cache_dtype=kv_cache_dtype,
            prompt=tokens,
            batch=sizes,
        )
        turns.append((ours, replace(ours, model=str(theirs))))
    before = CpuTime.now()
    comparisons = compare(turns, peer, rounds, dim)
    facts = {"peer": peer.describe(), **run_facts(before)}
    records = [c.record(str(theirs), facts) for c in comparisons]
    if json:
        write_json(records)
    else:
        print_comparisons(comparisons, facts["peer"])
    say_where(len(records), append(records, folder))


app.command("requests")(requests)
app.command("serve", cls=SeveralValuesCommand)(serve)


def _session(
    verb: str, threads: int | None, rounds: int, json: bool, output: str | None
) -> Session:
    from farthing.cli.bench.session import Session

    return Session(verb, threads=threads, rounds=rounds, json=json, output=output)
