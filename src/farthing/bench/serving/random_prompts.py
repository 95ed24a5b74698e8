"""Prompts of random tokens and exact lengths; the same for the same seed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from farthing.bench.serving.asked import Asked
from farthing.bench.serving.vocabulary import Vocabulary
from farthing.errors import InvalidParameterError

_TRIES = 12


@dataclass(frozen=True, slots=True)
class RandomLengths:
    """Tokens of prompts and answers, each drawn evenly from ``(1 ± range_ratio)`` of a length.

    The first ``prefix_len`` tokens, on top of ``input_len``, are the same in all prompts.
    """

    input_len: int = 1024
    output_len: int = 128
    range_ratio: float = 0.0
    prefix_len: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.range_ratio < 1:
            raise InvalidParameterError(
                f"--random-range-ratio {self.range_ratio}: must be from 0 to below 1"
            )


@dataclass(frozen=True, slots=True)
class PrefixLengths:
    """Tokens of prompts that share one of several beginnings."""

    prefix_len: int = 256
    suffix_len: int = 256
    num_prefixes: int = 10
    output_len: int = 128


async def random_prompts(
    vocabulary: Vocabulary, lengths: RandomLengths, count: int, seed: int
) -> list[Asked]:
    """``count`` prompts, what the model puts around a prompt counted in.

    Raises :class:`InvalidParameterError` where a prompt would be empty.
    """
    special = await _special_tokens(vocabulary)
    rng = np.random.default_rng(seed)
    wanted = max(lengths.input_len - special, 0)
    inputs = _draw(rng, wanted, lengths.range_ratio, count, least=0)
    outputs = _draw(rng, lengths.output_len, lengths.range_ratio, count, least=1)
    if lengths.prefix_len + min(inputs) < 1:
        raise InvalidParameterError(
            f"--random-input-len {lengths.input_len}: a prompt may get no token of its own; the "
            f"model adds {special} and --random-range-ratio takes off "
            f"{lengths.range_ratio:g} of the rest"
        )
    ordinary = await _ordinary(vocabulary)
    prefix = _tokens(rng, ordinary, lengths.prefix_len)

    async def one(number: int) -> Asked:
        own = np.random.default_rng((seed, number))
        tokens = prefix + _tokens(own, ordinary, inputs[number])
        text, made = await _exact(vocabulary, tokens, ordinary, own)
        return Asked(text, outputs[number], made + special)

    return list(await asyncio.gather(*[one(number) for number in range(count)]))


async def repeated_prefixes(
    vocabulary: Vocabulary, lengths: PrefixLengths, count: int, seed: int
) -> list[Asked]:
    """``count`` prompts, as many with each prefix, shuffled.

    Where ``count`` cannot be divided so, fewer. Raises :class:`InvalidParameterError` where there
    are fewer prompts than prefixes.
    """
    each = count // lengths.num_prefixes
    if each == 0:
        raise InvalidParameterError(
            f"--num-prompts {count}: must be at least --prefix-repetition-num-prefixes "
            f"{lengths.num_prefixes}"
        )
    special = await _special_tokens(vocabulary)
    ordinary = await _ordinary(vocabulary)
    rng = np.random.default_rng(seed)
    prefixes = [_tokens(rng, ordinary, lengths.prefix_len) for _ in range(lengths.num_prefixes)]

    async def one(number: int) -> Asked:
        own = np.random.default_rng((seed, number))
        tokens = prefixes[number // each] + _tokens(own, ordinary, lengths.suffix_len)
        text, made = await _exact(vocabulary, tokens, ordinary, own)
        return Asked(text, lengths.output_len, made + special)

    asked = await asyncio.gather(*[one(n) for n in range(each * lengths.num_prefixes)])
    return [asked[number] for number in rng.permutation(len(asked))]


async def _special_tokens(vocabulary: Vocabulary) -> int:
    plain, whole = await vocabulary.encode("a"), await vocabulary.encode("a", special=True)
    return len(whole) - len(plain)


async def _ordinary(vocabulary: Vocabulary) -> list[int]:
    ordinary = await vocabulary.ordinary()
    if not ordinary:
        raise InvalidParameterError(f"{vocabulary.name}: has no tokens that are text")
    return ordinary


def _draw(rng: np.random.Generator, length: int, ratio: float, count: int, least: int) -> list[int]:
    low = max(math.floor(length * (1 - ratio)), least)
    high = max(math.ceil(length * (1 + ratio)), low)
    return [int(value) for value in rng.integers(low, high + 1, count)]


def _tokens(rng: np.random.Generator, ordinary: Sequence[int], count: int) -> list[int]:
    return [ordinary[index] for index in rng.integers(0, len(ordinary), count)]


async def _exact(
    vocabulary: Vocabulary,
    tokens: list[int],
    ordinary: Sequence[int],
    rng: np.random.Generator,
) -> tuple[str, int]:
    """A text of as many tokens as ``tokens`` has, and how many it has after all.

    Neighbours may be other tokens when their text is read again: then some are cut off or added.
    """
    wanted = len(tokens)
    for _ in range(_TRIES):
        text = await vocabulary.decode(tokens)
        tokens = await vocabulary.encode(text)
        if len(tokens) == wanted:
            break
        tokens = tokens[:wanted] + _tokens(rng, ordinary, max(wanted - len(tokens), 0))
    else:
        text = await vocabulary.decode(tokens)
        tokens = await vocabulary.encode(text)
    return text, len(tokens)
