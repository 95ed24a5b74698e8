"""A mixture of experts against a dense block of the size that a row uses of it, in turns.

    python bench/experts.py [--threads 2] [--rounds 15]

The shapes are Qwen3-30B-A3B's: 128 experts of 768, 8 of them for each row of 2,048, in q4_0; the
dense block is 8 x 768 wide. Weights are random. Prints milliseconds a layer for passes of 1 to 512
rows. The dense program has more layers, so that neither fits the caches.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from farthing import _native
from farthing.program.builder import ProgramBuilder
from farthing.program.native import KvCache, NativeExecutor
from farthing.program.ops import Value, WeightSlot
from farthing.program.step import SequenceRows, step_batch

WIDTH, INNER, EXPERTS, TOP_K, VOCAB = 2048, 768, 128, 8, 512
LAYERS = {"experts": 4, "dense": 16}


class Block:
    """A program of equal layers and its random weights."""

    def __init__(self, kind: str) -> None:
        self.p = ProgramBuilder()
        self.rng = np.random.default_rng(0)
        self.weights: dict[str, _native.Matrix] = {}
        x = self.p.embed(self.dense("embedding", VOCAB, WIDTH))
        for layer in range(LAYERS[kind]):
            x = self.experts(layer, x) if kind == "experts" else self.gated(layer, x)
        head = self.dense("head", 16, WIDTH)
        self.program = self.p.finish(self.p.linear(self.p.logit_rows(x), head))

    def experts(self, layer: int, x: Value) -> Value:
        shapes = {"gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER)}
        stacks = [
            [self.q4_0(f"{layer}.{e}.{name}", *shape) for e in range(EXPERTS)]
            for name, shape in shapes.items()
        ]
        router = self.dense(f"{layer}.router", EXPERTS, WIDTH)
        return self.p.moe(x, router, *stacks, top_k=TOP_K, normalize=True, add=x)

    def gated(self, layer: int, x: Value) -> Value:
        inner = TOP_K * INNER
        gate, up = (self.q4_0(f"{layer}.{name}", inner, WIDTH) for name in ("gate", "up"))
        h = self.p.gated(self.p.linear(x, gate, up))
        return self.p.linear(h, self.q4_0(f"{layer}.down", WIDTH, inner), add=x)

    def dense(self, name: str, rows: int, cols: int) -> WeightSlot:
        values = self.rng.standard_normal((rows, cols)) / np.sqrt(cols)
        return self.add(name, "f32", rows, cols, values.astype(np.float32).view(np.uint8))

    def q4_0(self, name: str, rows: int, cols: int) -> WeightSlot:
        blocks = self.rng.integers(0, 256, (rows, cols // 32, 18), np.uint8)
        blocks[:, :, :2] = np.array([0.01], np.float16).view(np.uint8)  # the scales
        return self.add(name, "q4_0", rows, cols, blocks)

    def add(
        self, name: str, scheme: str, rows: int, cols: int, data: np.ndarray[tuple[int, ...]]
    ) -> WeightSlot:
        self.weights[name] = _native.Matrix(scheme, rows, cols)
        self.weights[name].pack(0, data.reshape(rows, -1))
        return WeightSlot(name, (rows, cols))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    blocks = {kind: Block(kind) for kind in LAYERS}
    executors = {
        kind: NativeExecutor(b.program, b.weights, num_threads=arguments.threads, max_rows=512)
        for kind, b in blocks.items()
    }
    kv = KvCache(dtype="fp16", num_layers=1, num_kv_heads=1, head_dim=16, num_blocks=64)
    rng = np.random.default_rng(1)
    print("rows  experts, ms  dense, ms  ratio, median (least to most)")
    for rows in (1, 8, 32, 512):
        times: dict[str, list[float]] = {kind: [] for kind in executors}
        for _ in range(arguments.rounds + 1):  # the first warms up
            tokens = rng.integers(0, VOCAB, rows).tolist()
            batch = step_batch([SequenceRows(tokens, 0, range(rows // 16 + 1))])
            for kind, executor in executors.items():
                start = time.perf_counter()
                executor.run(batch, kv)
                times[kind].append(1e3 * (time.perf_counter() - start) / LAYERS[kind])
        ours, dense = times["experts"][1:], times["dense"][1:]
        ratios = [a / b for a, b in zip(ours, dense, strict=True)]
        print(
            f"{rows:4}  {statistics.median(ours):11.2f}  {statistics.median(dense):9.2f}  "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
