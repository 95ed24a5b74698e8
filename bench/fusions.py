"""What each fusion of the lowering gains: passes with it and without, in turns.

    python bench/fusions.py MODEL [--threads 2] [--rounds 15] [--clock wall|cpu]

Takes one fusion apart at a time, on the program or on what lowering made of it, and compares
milliseconds a pass at several numbers of rows, with and without in turns. The results have the same
bits, or the run ends. ``--clock cpu`` counts the CPU time of the calling thread, for one thread on
a machine that has others' work to do. Stacked matrices (q, k and v; gate and up) are compared as
the products alone, in a program that has nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from farthing import _native
from farthing.engine.model_loader import LoadOptions, load_model
from farthing.program.builder import ProgramBuilder
from farthing.program.lowering import NOWHERE, FloatBuffer, Instruction, LoweredProgram, lower
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import (
    Add,
    Attention,
    Gated,
    Linear,
    Op,
    Program,
    RmsNorm,
    Value,
    WeightSlot,
)
from farthing.program.step import SequenceRows, StepBatch, step_batch
from farthing.program.weights import NativeWeight

ROWS = (1, 4, 16, 256)
CONTEXT = 64
Pair = tuple[NativeExecutor, NativeExecutor, KvCache]


def adds_apart(program: Program) -> Program:
    """Residual adds as operations of their own."""
    ops: list[Op] = []
    next_id = 1 + max(op.out.id for op in program.ops if hasattr(op, "out"))
    for op in program.ops:
        if isinstance(op, Linear) and op.add is not None:
            product = Value(next_id, op.out.rows, op.out.width)
            next_id += 1
            ops += [replace(op, out=product, add=None), Add(op.out, product, op.add)]
        else:
            ops.append(op)
    return replace(program, ops=tuple(ops))


def rounding_apart(lowered: LoweredProgram) -> LoweredProgram:
    """Norms, gates and attention that only write floats, rounded by an instruction of their own."""
    buffers, instructions = list(lowered.float_buffers), []
    spare: dict[FloatBuffer, int] = {}
    for i in lowered.instructions:
        if not isinstance(i.op, RmsNorm | Gated | Attention) or not i.rounded:
            instructions.append(i)
            continue
        out = i.out
        if out == NOWHERE:
            wanted = FloatBuffer(i.op.out.rows, i.op.out.width)
            if wanted not in spare:
                spare[wanted] = len(buffers)
                buffers.append(wanted)
            out = spare[wanted]
        instructions.append(replace(i, out=out, rounded=()))
        instructions.append(Instruction(None, (out,), NOWHERE, i.rounded))
    return replace(lowered, float_buffers=tuple(buffers), instructions=tuple(instructions))


def stacked(program: Program, weights: Mapping[str, NativeWeight], apart: bool) -> Program:
    """The stacked products of ``program`` alone, whole or one matrix at a time."""
    builder = ProgramBuilder()
    shapes = {w.name: w.shape for w in program.weights}
    stacks = [op for op in program.ops if isinstance(op, Linear) and len(op.weights) > 1]
    x = builder.embed(WeightSlot("table", (512, stacks[0].x.width)))
    x = builder.rms_norm(x, WeightSlot("norm", (x.width,)), 1e-6)
    for op in stacks:
        assert op.x.width == x.width
        slots = [WeightSlot(name, shapes[name]) for name in op.weights]
        for part in [[slot] for slot in slots] if apart else [slots]:
            builder.linear(x, *part)
    return builder.finish(builder.logit_rows(x))


def pairs(path: Path, threads: int) -> Iterator[tuple[str, Pair]]:
    """Name, executors with and without, and their cache."""
    options = LoadOptions(num_threads=threads, kv_cache_tokens=4096, max_num_batched_tokens=512)
    runner = load_model(path, options).runner
    fused, kv = runner.executor, runner.kv
    program, weights = fused.program, fused.weights

    def executor(other: Program, given: Mapping[str, NativeWeight] = weights) -> NativeExecutor:
        return NativeExecutor(other, given, num_threads=threads, max_rows=512)

    yield "residual adds with products", (fused, executor(adds_apart(program)), kv)
    with patch(
        "farthing.program.native.lower", lambda *arguments: rounding_apart(lower(*arguments))
    ):
        rounding = executor(program)
    yield "rounding with what makes it", (fused, rounding, kv)
    rng = np.random.default_rng(0)
    width = next(op.x.width for op in program.ops if isinstance(op, Linear))
    table = _native.Matrix("f32", 512, width)
    table.pack(0, rng.standard_normal((512, width)).astype(np.float32).view(np.uint8))
    given = {**weights, "table": table, "norm": np.ones(width, np.float32)}
    whole, apart = (executor(stacked(program, weights, a), given) for a in (False, True))
    yield "stacked products", (whole, apart, kv)


def step(rows: int) -> StepBatch:
    """One prompt, or as many sequences that decode."""
    if rows > 32:
        return step_batch([SequenceRows([1 + i % 500 for i in range(rows)], 0, range(rows // 16))])
    blocks = CONTEXT // 16 + 1
    return step_batch(
        [SequenceRows([1 + i], CONTEXT, range(i * blocks, (i + 1) * blocks)) for i in range(rows)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    arguments = parser.parse_args()
    now: Callable[[], float] = time.perf_counter
    if arguments.clock == "cpu":
        now = time.thread_time
    print("fusion                         rows  fused, ms  apart, ms  apart to fused (quartiles)")
    for name, (fused, apart, kv) in pairs(arguments.model, arguments.threads):
        for rows in ROWS:
            batch = step(rows)
            fused.run(batch, kv)
            logits = fused.run(batch, kv).logits.copy()
            np.testing.assert_array_equal(apart.run(batch, kv).logits, logits)
            times: dict[NativeExecutor, list[float]] = {fused: [], apart: []}
            for number in range(arguments.rounds):
                turns = [fused, apart] if number % 2 else [apart, fused]
                for executor in turns:
                    start = now()
                    executor.run(batch, kv)
                    times[executor].append(1e3 * (now() - start))
            ratios = [a / f for f, a in zip(times[fused], times[apart], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            medians = [statistics.median(times[e]) for e in (fused, apart)]
            print(
                f"{name:29}  {rows:4}  {medians[0]:9.2f}  {medians[1]:9.2f}  "
                f"{middle:.3f} ({low:.3f} to {high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
