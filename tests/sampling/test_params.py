from __future__ import annotations

from typing import Any

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
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**70]),
        ("stop_token_ids", [True]),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("logprobs", -1),
        ("logprobs", 21),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidParameterError, match=name):
        SamplingParams(**arguments)


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-9, True), (0.1, False)])
def test_tiny_temperatures_are_greedy(temperature: float, greedy: bool) -> None:
    assert SamplingParams(temperature=temperature).greedy is greedy
