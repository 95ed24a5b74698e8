from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farthing.errors import InvalidParameterError
from farthing.sampling.params import SamplingParams


def test_the_defaults_are_those_vllm_users_know() -> None:
    params = SamplingParams()
    assert (params.temperature, params.max_tokens, params.stop_strings) == (1.0, 16, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", 1e9),
        ("temperature", "0"),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["x"] * 17),
        ("stop", "x" * 257),
        ("stop", 5),
        ("stop", "\ud800"),
        ("stop_token_ids", 5),
        ("stop_token_ids", b"ab"),
        ("stop_token_ids", {1: 2.0}),
        ("stop_token_ids", np.array(1)),
        ("stop", {"a": 1}),
        ("stop", b"ab"),
        ("stop", np.array(1)),
        ("allowed_token_ids", {1: 2.0}),
        ("bad_words", {"a": 1}),
        ("dry_sequence_breakers", {"a": 1}),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**70]),
        ("stop_token_ids", [True]),
        ("temperature", 10**400),
        ("temperature", float("inf")),
        ("top_k", -2),
        ("top_k", 2**40),
        ("top_k", 1.0),
        ("top_k", True),
        ("top_p", 0),
        ("top_p", -1),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("min_p", 2),
        ("min_p", -0.1),
        ("typical_p", 0),
        ("typical_p", 1.01),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("presence_penalty", 10),
        ("presence_penalty", -10),
        ("frequency_penalty", 2.5),
        ("frequency_penalty", None),
        ("dry_multiplier", -1),
        ("dry_base", 0.5),
        ("dry_allowed_length", 0),
        ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", [3]),
        ("logit_bias", {"AI": 1}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", {2**40: 1}),
        ("logit_bias", {True: 1}),
        ("logit_bias", {1: 101}),
        ("logit_bias", {1: float("nan")}),
        ("logit_bias", [(1, 2)]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [-1]),
        ("allowed_token_ids", 3),
        ("bad_words", ""),
        ("bad_words", ["a", ""]),
        ("bad_words", [5]),
        ("bad_words", ["x"] * 1025),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("min_tokens", 1.5),
        ("ignore_eos", 1),
        ("ignore_eos", None),
        ("stop", ["x"] * 10_000),
        ("stop", "x" * 2**20),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("seed", "x"),
        ("seed", True),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", 151_936),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidParameterError, match=rf"{name}.*( must be |, at most)") as raised:
        SamplingParams(**arguments)
    assert len(str(raised.value)) < 200, "it does not echo what it was given"
    assert "\n" not in str(raised.value)


def test_the_largest_values_are_taken() -> None:
    params = SamplingParams(
        temperature=1000,
        top_k=2**31 - 1,
        top_p=1,
        min_p=1,
        typical_p=1,
        repetition_penalty=100,
        presence_penalty=2,
        frequency_penalty=-2,
        logit_bias={2**31 - 1: -100, 0: 100},
        max_tokens=2**31,
        min_tokens=2**31 - 1,
        seed=2**64 - 1,
        logprobs=20,
        prompt_logprobs=0,
    )
    assert params.max_tokens == 2**31, "more than the context holds means all of it"


def test_what_the_caller_keeps_may_change_or_run_out() -> None:
    bias, ids = {1: 2.0}, [5]
    params = SamplingParams(logit_bias=bias, stop_token_ids=ids, bad_words=iter(["a"]))  # type: ignore[arg-type]
    bias[1], ids[0] = 99.0, 6
    assert (params.logit_bias, params.stop_token_ids) == ({1: 2.0}, (5,))
    assert params.bad_words == ("a",)


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-9, True), (0.1, False)])
def test_tiny_temperatures_are_greedy(temperature: float, greedy: bool) -> None:
    assert SamplingParams(temperature=temperature).greedy is greedy
