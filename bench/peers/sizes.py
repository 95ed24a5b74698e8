"""What every program in this folder measures, and the options they share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

PREFILL = 512
DEPTH = 64
NEW_TOKENS = 48


def prompt(length: int, first: int) -> list[int]:
    """Token ids without meaning, other ones for each ``first``."""
    return [(7919 * (i + 31 * first)) % 150_000 for i in range(length)]


def arguments(description: str | None) -> argparse.Namespace:
    """The command line: a model, threads and batch sizes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--batch", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8, 16, 32]
    )
    return parser.parse_args()


def rates(seconds: Callable[[int, int, int], float], batches: Sequence[int]) -> dict[str, float]:
    """Tokens/s of a program that only generates whole texts.

    ``seconds(batch, depth, new_tokens)`` is how long it takes for ``batch`` prompts of ``depth``
    tokens; what a single new token takes is what the prompts take.
    """
    seconds(1, DEPTH, 4)
    result = {"prefill": PREFILL / seconds(1, PREFILL, 1)}
    for batch in batches:
        once = seconds(batch, DEPTH, 1)
        taken = seconds(batch, DEPTH, NEW_TOKENS + 1) - once
        result[f"decode {batch}"] = batch * NEW_TOKENS / taken
    return result
