"""Plays seeds: ``python -m simulation --seeds 0:1000000 --jobs 2``; stops at the first failure."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from multiprocessing import Pool

from simulation.driver import check_seed

CHUNK = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, required=True, help="one, or FIRST:END")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    arguments = parser.parse_args()
    seeds: range = arguments.seeds
    if len(seeds) == 1:
        world = check_seed(seeds[0])
        print(f"{world.config}, {world.runner.num_blocks} blocks, {world.steps} steps")
        print(f"{dict(world.ended)} {dict(world.seen)}")
        return 0
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    seen: Counter[str] = Counter()
    started, done = time.monotonic(), 0
    with Pool(arguments.jobs) as pool:
        for number, (failure, found) in enumerate(pool.imap_unordered(_play, chunks), 1):
            if failure is not None:
                pool.terminate()
                print(f"\n{failure}", file=sys.stderr)
                return 1
            seen += found
            done += CHUNK
            if number % 20 == 0 or number == len(chunks):
                seconds = time.monotonic() - started
                print(
                    f"\r{min(done, len(seeds)):,} of {len(seeds):,} seeds, none failed, "
                    f"{done / seconds:.0f} a second",
                    end="",
                    flush=True,
                )
    print("\n" + ", ".join(f"{name} {count:,}" for name, count in sorted(seen.items())))
    return 0


def _play(seeds: range) -> tuple[str | None, Counter[str]]:
    """The traceback of the first seed that fails, if any, and what happened in all."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            world = check_seed(seed)
        except Exception:
            return traceback.format_exc(), seen
        seen += world.seen
        seen.update(world.ended)
        seen["step"] += world.steps
    return None, seen


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end)) if end else range(int(first), int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
