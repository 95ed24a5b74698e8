"""What the thread team costs: barriers, starts after a pause, more threads than CPUs, scaling.

    python bench/threads.py [MODEL] [--rounds N]

With MODEL also the time of a pass (batch 1, and a prompt of 512 tokens) by teams of other sizes, in
turns with a team of two.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from farthing import _native, machine
from farthing.engine.model_loader import LoadOptions, load_model
from farthing.program.native import KvCache, NativeExecutor, thread_team
from farthing.program.step import SequenceRows, StepBatch, step_batch

PAUSES = (0.0, 0.0003, 0.0009, 0.0015, 0.01)
PROMPT = 512


def spread(seconds: Sequence[float]) -> str:
    """Median and the tenths at both ends, in microseconds."""
    tenths = statistics.quantiles(seconds, n=10)
    values = (statistics.median(seconds), tenths[0], tenths[-1])
    return "{:8.2f} us ({:.2f} to {:.2f})".format(*(1e6 * v for v in values))


def team_costs() -> None:
    cpus = machine.usable_cpus()
    for threads in (cpus, 4 * cpus, 32 * cpus):
        team = thread_team(threads)
        print(f"barrier, {threads} threads on {cpus} CPUs: "
              f"{spread(_native.barrier_seconds(team, 20_000))}")  # fmt: skip
    team = thread_team(cpus)
    for pause in PAUSES:
        print(f"start after {1e3 * pause:.1f} ms: "
              f"{spread(_native.start_seconds(team, 200, pause))}")  # fmt: skip


def passes(path: Path, rounds: int) -> None:
    options = LoadOptions(num_threads=2, kv_cache_tokens=2 * PROMPT, max_model_len=PROMPT + 64)
    runner = load_model(path, options).runner
    blocks = list(range(PROMPT // 16 + 1))
    batches = {
        "batch 1": step_batch([SequenceRows([5], 64, blocks)]),
        f"prompt of {PROMPT}": step_batch([SequenceRows(list(range(PROMPT)), 0, blocks)]),
    }
    cpus = machine.usable_cpus()
    sizes = [(2, cpus), (1, cpus), (8, cpus), (64, cpus), (8, 8), (64, 64)]
    teams = {size: thread_team(*size) for size in sizes}
    for name, batch in batches.items():
        times: dict[tuple[int, int], list[float]] = {size: [] for size in sizes}
        for _ in range(rounds):
            for size, team in teams.items():
                times[size].append(timed(runner.executor, team, batch, runner.kv))
        two = times[sizes[0]]
        print(f"{name}: {1e3 * statistics.median(two):.2f} ms with 2 threads")
        for threads, forced in sizes[1:]:
            ratios = [t / u for t, u in zip(times[threads, forced], two, strict=True)]
            print(f"  {threads} threads, {forced} awake at most: {statistics.median(ratios):.2f} "
                  f"times that ({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


def timed(
    executor: NativeExecutor, team: _native.ThreadPool, batch: StepBatch, kv: KvCache
) -> float:
    executor._threads = team
    executor.run(batch, kv)  # wakes them
    start = time.perf_counter()
    executor.run(batch, kv)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(f"{machine.cpu_model()}, {machine.usable_cpus()} CPUs, {machine.active_isa()}")
    team_costs()
    if options.model is not None:
        passes(options.model, options.rounds)


if __name__ == "__main__":
    main()
