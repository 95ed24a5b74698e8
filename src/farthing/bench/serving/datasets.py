"""Requests from files: conversations of ShareGPT, prompts of one's own, traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from farthing.bench.serving.asked import Asked
from farthing.bench.serving.vocabulary import Vocabulary
from farthing.bench.trace import read_trace
from farthing.errors import InvalidParameterError

# What vLLM's tool takes of ShareGPT, so that both ask the same; tokens.
_LEAST, _LONGEST_PROMPT, _LONGEST = 4, 1024, 2048


def trace_requests(path: Path) -> list[Asked]:
    """Requests of a trace in its order. Raises as :func:`~farthing.bench.trace.read_trace`."""
    return [
        Asked(each.prompt, each.max_tokens, ignore_eos=each.ignore_eos, arrival=each.arrival)
        for each in read_trace(path, option="--dataset-path")
    ]


def custom_requests(path: Path, output_len: int) -> list[Asked]:
    """JSON lines with ``prompt`` each, and ``output_tokens`` where they differ from the rest.

    Raises :class:`InvalidParameterError` naming what is wrong, ``OSError``.
    """
    asked = []
    for number, item in _lines(path):
        most = item.get("output_tokens", output_len) if isinstance(item, dict) else None
        match item:
            case {"prompt": str(prompt)} if prompt and type(most) is int and most >= 1:
                asked.append(Asked(prompt, most))
            case _:
                raise _wrong(
                    path,
                    f"line {number} must have a prompt (text) and, if it likes, output_tokens (a "
                    "whole number from 1)",
                )
    if not asked:
        raise _wrong(path, "has no prompts, at least one is needed")
    return asked


async def sharegpt_requests(
    path: Path, vocabulary: Vocabulary, count: int, output_len: int | None, seed: int
) -> list[Asked]:
    """Up to ``count`` first turns, shuffled, each with an answer as long as the one recorded.

    Those with less than 4 tokens, a prompt of more than 1,024 or more than 2,048 in all are left
    out. ``output_len``: tokens of all answers instead. Raises :class:`InvalidParameterError` naming
    what is wrong, ``OSError``.
    """
    pairs = list(_conversations(path))
    asked: list[Asked] = []
    for index in np.random.default_rng(seed).permutation(len(pairs)):
        if len(asked) == count:
            break
        prompt, completion = pairs[index]
        tokens = len(await vocabulary.encode(prompt, special=True))
        answer = output_len
        if answer is None:
            answer = len(await vocabulary.encode(completion, special=True))
            if answer < _LEAST:
                continue
        if _LEAST <= tokens <= _LONGEST_PROMPT and tokens + answer <= _LONGEST:
            asked.append(Asked(prompt, answer, tokens))
    if not asked:
        raise _wrong(path, "has no conversation of a length that is taken")
    return asked


def oversampled(asked: list[Asked], count: int) -> list[Asked]:
    """``count`` requests, from the beginning again where there are fewer."""
    return [asked[number % len(asked)] for number in range(count)]


def _conversations(path: Path) -> Iterator[tuple[str, str]]:
    try:
        items = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from None
    if not isinstance(items, list):
        raise _wrong(path, "must be a JSON list of conversations, as ShareGPT has them")
    for item in items:
        match item:
            case {"conversations": [{"value": str(prompt)}, {"value": str(answer)}, *_]}:
                yield prompt, answer


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise _wrong(path, f"byte {error.start} is not UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _wrong(path, f"line {number}: {error}") from None


def _wrong(path: Path, problem: str) -> InvalidParameterError:
    return InvalidParameterError(f"--dataset-path {path}: {problem}")
