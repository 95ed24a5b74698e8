"""Sampling rows of 152 k logits on two threads, in turns with a plain read of the same bytes.

    python bench/sampling.py [--rows 32] [--width 151936] [--threads 2] [--rounds 200]

Each round times every case once, so that what the machine does to one it does to all. Prints least
and median milliseconds of each, and the median of the rounds' ratios to the read. Probabilities
fall with the rank's power of 1.5: 95 % lie in some 240 tokens. The "broad" rows are normal instead,
and 95 % of them lie in 14,000 tokens. The histories have 1,000 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from farthing import _native
from farthing.program.native import thread_team
from farthing.sampling.params import SamplingParams
from farthing.sampling.request_sampler import RequestSampler
from farthing.sampling.sampler import Sampler
from farthing.sampling.vocabulary import SamplingVocabulary

PENALTIES = {"repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.1}
CASES: dict[str, dict[str, float]] = {  # by name; "broad" in the name asks for broad rows
    "greedy": {"temperature": 0},
    "top-k 40, top-p 0.95, penalties": {"top_k": 40, "top_p": 0.95, **PENALTIES},
    "top-p 0.95": {"top_p": 0.95},
    "min-p 0.05": {"min_p": 0.05},
    "typical-p 0.9": {"typical_p": 0.9},
    "temperature 1 alone": {},
    "DRY, greedy": {"temperature": 0, "dry_multiplier": 0.8},
    "top-p 0.95, broad": {"top_p": 0.95},
    "typical-p 0.9, broad": {"typical_p": 0.9},
}


class NoTexts:
    """A vocabulary that only counts: no case here needs text."""

    vocab_size = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        raise AssertionError(f"no case here has text: {text!r}")

    def token_bytes(self, token_id: int) -> bytes:
        raise AssertionError(f"no case here asks for the text of token {token_id}")


def drawing(
    logits: NDArray[np.float32], threads: _native.ThreadPool, settings: dict[str, float]
) -> Callable[[], object]:
    rng = np.random.default_rng(1)
    vocabulary = SamplingVocabulary(NoTexts(), logits.shape[1])
    params = SamplingParams(**settings, dry_sequence_breakers=())  # type: ignore[arg-type]
    history = rng.integers(0, logits.shape[1], 500).tolist()
    requests = [
        RequestSampler(params, seed, [*history, seed], (), vocabulary)
        for seed in range(len(logits))
    ]
    outputs = [rng.integers(0, logits.shape[1], 500).tolist() for _ in requests]
    sampler = Sampler(threads)
    return lambda: sampler.draw(
        logits, [r.row(output) for r, output in zip(requests, outputs, strict=True)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--width", type=int, default=151_936)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (options.rows, options.width)
    broad = (rng.standard_normal(shape) * 2.5 + rng.exponential(0.8, shape)).astype(np.float32)
    ranks = rng.permuted(np.broadcast_to(np.arange(1, options.width + 1), shape), axis=1)
    logits = np.ascontiguousarray(-1.5 * np.log(ranks), np.float32)
    threads = thread_team(options.threads)
    run = {
        name: drawing(broad if "broad" in name else logits, threads, settings)
        for name, settings in CASES.items()
    }
    sampler = Sampler(threads)
    everyone = list(range(options.rows))
    run["20 log probabilities"] = lambda: sampler.logprobs(
        logits, everyone, [0] * options.rows, [20] * options.rows
    )
    times: dict[str, list[float]] = {name: [] for name in run}
    reads = []
    for _ in range(options.rounds):
        rate = _native.read_bandwidth(logits.nbytes, options.threads, 1)[0]
        reads.append(logits.nbytes / rate / 1e6)
        for name, call in run.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    print(
        f"{options.rows} rows of {options.width} logits, {options.threads} threads, {_native.isa()}"
    )
    print(f"{'':34} {'least':>8} {'median':>8} {'to a read':>10}")
    print(f"{'read of the same size':34} {min(reads):8.3f} {statistics.median(reads):8.3f}")
    for name, values in times.items():
        ratio = statistics.median(t / r for t, r in zip(values, reads, strict=True))
        print(f"{name:34} {min(values):8.3f} {statistics.median(values):8.3f} {ratio:10.2f}")


if __name__ == "__main__":
    main()
