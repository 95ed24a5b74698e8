"""Rope tables: our logarithm, and frequencies that equal the reference's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farthing.config import Rope, RopeScaling
from farthing.errors import InvalidParameterError
from farthing.program.reference import inverse_frequencies
from farthing.program.rope import (
    longrope_magnitude,
    natural_log,
    scale_inverse_frequencies,
    yarn_magnitude,
)

SCALINGS = {
    "none": None,
    "linear": RopeScaling("linear", factor=4.0),
    "llama3": RopeScaling("llama3", factor=8.0, original_context_length=64),
    "yarn": RopeScaling("yarn", factor=4.0, original_context_length=4096),
    "yarn between dimensions": RopeScaling(
        "yarn", factor=2.5, original_context_length=300, beta_fast=6.0, truncate=False
    ),
    "yarn of one dimension": RopeScaling("yarn", factor=4.0, original_context_length=6),
    "factors": RopeScaling("factors", factors=tuple(1.0 + i / 8 for i in range(32))),
}


def test_logarithm_is_right_to_the_last_bits() -> None:
    rng = np.random.default_rng(0)
    values = [1.0, 2.0, 0.5, 10_000.0, 5e-324, 1.7e308, 1 + 2**-52, 1 - 2**-53]
    values += np.exp(rng.uniform(-700, 700, 2000)).tolist()
    values += rng.uniform(0.5, 2.0, 2000).tolist()
    for x in values:
        assert math.isclose(natural_log(x), math.log(x), rel_tol=2**-50, abs_tol=2**-60)


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_are_the_references(name: str) -> None:
    rope = Rope(10_000.0, 64, SCALINGS[name])
    base = inverse_frequencies(Rope(10_000.0, 64)).tolist()
    ours = scale_inverse_frequencies(base, rope)
    np.testing.assert_allclose(ours, inverse_frequencies(rope), rtol=2.0**-48)
    assert (ours == base) == (name == "none")


def test_longrope_must_be_fixed_first() -> None:
    scaling = RopeScaling("longrope", factors=(2.0,) * 8, short_factors=(1.0,) * 8)
    rope = Rope(10_000.0, 16, scaling)
    base = [1.0] * 8
    with pytest.raises(InvalidParameterError, match="at_context"):
        scale_inverse_frequencies(base, rope)
    with pytest.raises(InvalidParameterError, match="at_context"):
        inverse_frequencies(rope)
    assert scale_inverse_frequencies(base, rope.at_context(9000)) == [0.5] * 8
    assert scale_inverse_frequencies(base, rope.at_context(8192)) == base


def test_magnitudes() -> None:
    assert yarn_magnitude(1.0) == yarn_magnitude(0.5) == 1.0
    assert math.isclose(yarn_magnitude(4.0), 0.1 * math.log(4.0) + 1)
    assert math.isclose(yarn_magnitude(40.0, 0.707), 0.0707 * math.log(40.0) + 1)
    assert longrope_magnitude(1.0, 4096) == 1.0
    expected = math.sqrt(1 + math.log(32) / math.log(4096))
    assert math.isclose(longrope_magnitude(32.0, 4096), expected)
