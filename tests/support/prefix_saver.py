"""A process that saves a prefix cache again and again: ``FILE SEED BLOCKS TIMES``."""

from __future__ import annotations

import sys
from pathlib import Path

from farthing.engine.prefix_store import save_prefix_cache
from support.prefix_caches import KEY, Cache, prompt


def main() -> None:
    path, seed, blocks, times = Path(sys.argv[1]), *map(int, sys.argv[2:])
    cache = Cache(blocks)
    cache.compute(prompt(seed, blocks))
    print("ready", flush=True)
    for _ in range(times):
        assert save_prefix_cache(path, KEY, cache.tree, cache.kv) == blocks


if __name__ == "__main__":
    main()
