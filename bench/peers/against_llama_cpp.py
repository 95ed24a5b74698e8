"""Farthing and llama.cpp in turns on one GGUF file: prefill of 512 tokens, decode at batch 1.

    python bench/peers/against_llama_cpp.py LLAMA_BENCH MODEL [--threads 2] [--rounds 5]

Each round starts both programs anew, one after the other, so that what the machine does to one it
does to the other. Prints every round, then medians and the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

PREFILL, DECODE, DEPTH = 512, 128, 64


def llama_cpp(program: Path, model: Path, threads: int) -> dict[str, float]:
    """Tokens/s of llama-bench, one repetition after its own warm-up."""
    sizes = ["-p", str(PREFILL), "-n", "0"], ["-p", "0", "-n", str(DECODE), "-d", str(DEPTH)]
    rates = []
    for size in sizes:
        command = [program, "-m", model, "-t", str(threads), "-r", "1", "-o", "json", *size]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rates.append(json.loads(output)[0]["avg_ts"])
    return {"prefill": rates[0], "decode": rates[1]}


def farthing(model: Path, threads: int) -> dict[str, float]:
    """Tokens/s of this package in a process of its own, after one warm-up pass."""
    command = [sys.executable, __file__, "--child", str(model), "--threads", str(threads)]
    result: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return result


def child(model: Path, threads: int) -> dict[str, float]:
    from farthing import LLM, SamplingParams

    llm = LLM(model, num_threads=threads)
    prompt = [(7919 * i) % llm.config.vocab_size for i in range(PREFILL)]
    once = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    llm.generate(prompt, once)
    start = time.perf_counter()
    llm.generate(prompt, once)
    prefill = PREFILL / (time.perf_counter() - start)
    params = SamplingParams(temperature=0, max_tokens=DECODE + 1, ignore_eos=True)
    metrics = llm.generate(prompt[:DEPTH], params)[0].metrics
    return {"prefill": prefill, "decode": metrics.tokens_per_second or 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("llama_bench", type=Path, nargs="?")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(child(options.child, options.threads)))
        return
    if options.llama_bench is None or options.model is None:
        parser.error("LLAMA_BENCH and MODEL are needed")
    rounds = []
    for number in range(options.rounds):
        ours = farthing(options.model, options.threads)
        theirs = llama_cpp(options.llama_bench, options.model, options.threads)
        rounds.append((ours, theirs))
        print(f"round {number + 1}:", json.dumps({"farthing": ours, "llama.cpp": theirs}))
    for phase in ("prefill", "decode"):
        ours = statistics.median(o[phase] for o, _ in rounds)
        theirs = statistics.median(t[phase] for _, t in rounds)
        ratios = sorted(o[phase] / t[phase] for o, t in rounds)
        print(
            f"{phase}: farthing {ours:.1f}, llama.cpp {theirs:.1f} tokens/s; ratio "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
