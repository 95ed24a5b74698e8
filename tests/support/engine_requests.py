"""Requests of every kind, fixed ones and random neighbours."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from farthing import SamplingParams, StructuredOutputsParams


@dataclass(frozen=True)
class Spec:
    """A prompt and what is asked about it."""

    prompt: tuple[int, ...]
    params: SamplingParams


SCHEMA = {
    "type": "object",
    "properties": {"coin": {"enum": ["farthing", "penny"]}, "worth": {"type": "integer"}},
    "required": ["coin", "worth"],
}


def make_prompt(rng: random.Random, vocab_size: int, length: int) -> tuple[int, ...]:
    """Random tokens, none of them a special one of the tiny models."""
    return tuple(rng.randrange(4, vocab_size) for _ in range(length))


def make_spec(prompt: tuple[int, ...], max_tokens: int, **params: Any) -> Spec:
    """A request that ends by its length, unless it is told otherwise."""
    return Spec(prompt, SamplingParams(**{"max_tokens": max_tokens, "ignore_eos": True, **params}))


def make_subjects(vocab_size: int, max_tokens: int) -> list[Spec]:
    """One request of each kind; prompts end before, at and behind a block's end."""
    rng = random.Random(1)
    regex = StructuredOutputsParams(regex="[a-f]{3}-[0-9]{2}( penny| farthing)+")
    kinds: list[tuple[int, dict[str, Any]]] = [
        (33, {"temperature": 0}),  # only its argmax is wanted
        (16, {"temperature": 0, "logprobs": 3}),
        (47, {"seed": 1, "temperature": 0.9, "top_p": 0.9, "logprobs": 2}),
        (20, {"seed": 2, "repetition_penalty": 1.3, "dry_multiplier": 1.5, "min_tokens": 3}),
        (70, {"seed": 3, "top_k": 40, "prompt_logprobs": 2, "logprobs": 0}),  # in two steps
        (17, {"seed": 4, "structured_outputs": regex, "ignore_eos": False}),
        (
            5,
            {
                "temperature": 0,
                "logprobs": 1,
                "structured_outputs": StructuredOutputsParams(json=SCHEMA),
                "ignore_eos": False,
            },
        ),
        (1, {"seed": 5, "min_p": 0.02, "presence_penalty": 0.7, "logit_bias": {9: 2.0}}),
    ]
    return [make_spec(make_prompt(rng, vocab_size, n), max_tokens, **params) for n, params in kinds]


def make_neighbour(rng: random.Random, vocab_size: int, longest: int, max_tokens: int) -> Spec:
    """A request of a random kind; every third without a seed, some of several choices."""
    params: dict[str, Any] = {"temperature": rng.choice((0, 0.7, 1.0, 1.6))}
    if rng.random() < 0.67:
        params["seed"] = rng.getrandbits(64)
    if rng.random() < 0.3:
        params["logprobs"] = rng.randrange(4)
    if rng.random() < 0.2:
        params["prompt_logprobs"] = rng.randrange(3)
    if rng.random() < 0.2:
        params["n"] = rng.randint(2, 3)
    kind = rng.randrange(6)
    if kind == 0:
        params |= {"top_p": 0.8, "frequency_penalty": 0.4}
    elif kind == 1:
        params |= {"repetition_penalty": 1.2, "top_k": 30}
    elif kind == 2:
        choices = StructuredOutputsParams(choice=["farthing", "penny", "a shilling"])
        params |= {"structured_outputs": choices, "ignore_eos": False}
    elif kind == 3:
        params |= {"ignore_eos": False}
    length = rng.randint(1, longest)
    return make_spec(make_prompt(rng, vocab_size, length), rng.randint(1, max_tokens), **params)
