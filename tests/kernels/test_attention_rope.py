"""Rotary embedding: frequencies and tables against many digits, rotation bit for bit."""

from __future__ import annotations

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from .float32_model import BEST, ISAS, fma32, hostile, native, same_bits


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 1_000_000.0, 1234.5])
@pytest.mark.parametrize("dim", [2, 64, 80, 96, 128, 256])
def test_inverse_frequencies(theta: float, dim: int) -> None:
    ours = native.rope_inverse_frequencies(theta, dim)
    assert ours.shape == (dim // 2,)
    assert ours[0] == 1.0
    with mpmath.workdps(40):
        for i, value in enumerate(ours):
            exact = mpmath.mpf(theta) ** (-mpmath.mpf(2 * i) / dim)
            assert abs(mpmath.mpf(float(value)) / exact - 1) < mpmath.mpf(2) ** -48


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("magnitude", [1.0, 1.1386])
def test_table_is_right_to_position_131072(isa: str, magnitude: float) -> None:
    rng = np.random.default_rng(0)
    inv_freq = native.rope_inverse_frequencies(1_000_000.0, 128)
    edges = [0, 1, 2, 1023, 4096, 32_767, 131_071, 131_072]
    positions = np.concatenate([edges, rng.integers(0, 131_073, 40)]).astype(np.int32)
    cos, sin = native.rope_table(isa, positions, inv_freq, magnitude)
    with mpmath.workdps(30):
        for row, position in enumerate(positions):
            for i in (0, 1, 2, 7, 31, 32, 63):
                angle = mpmath.mpf(float(np.float64(position) * inv_freq[i]))
                for ours, exact in ((cos, mpmath.cos(angle)), (sin, mpmath.sin(angle))):
                    exact *= magnitude
                    # Half an ulp of the float and a hair for the double arithmetic before it.
                    assert abs(float(ours[row, i]) - exact) <= (0.5 + 1e-6) * max(
                        float(np.spacing(np.float32(abs(float(exact))))), 2.0**-149
                    )


def test_table_has_the_same_bits_on_every_isa() -> None:
    positions = np.arange(0, 131_073, 97, dtype=np.int32)
    for dim in (2, 6, 64, 80):
        inv_freq = native.rope_inverse_frequencies(10_000.0, dim)
        tables = [native.rope_table(isa, positions, inv_freq) for isa in ISAS]
        for cos, sin in tables[1:]:
            assert same_bits(cos, tables[0][0])
            assert same_bits(sin, tables[0][1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("head_dim", "half"), [(16, 8), (64, 32), (80, 40), (96, 48), (128, 64), (80, 10), (64, 1)]
)
def test_rotation(isa: str, head_dim: int, half: int) -> None:
    """Pairs (i, i + half) turn by the table's angle; later dimensions stay as they are."""
    rng = np.random.default_rng(head_dim)
    heads = hostile(rng, (5, 3, head_dim))
    positions = rng.integers(0, 5000, 5).astype(np.int32)
    inv_freq = native.rope_inverse_frequencies(10_000.0, 2 * half)
    cos, sin = native.rope_table(isa, positions, inv_freq)
    turned = heads.copy()
    native.rope_rows(isa, turned, cos, sin)
    a, b = heads[..., :half], heads[..., half : 2 * half]
    c, s = cos[:, None], sin[:, None]
    assert same_bits(turned[..., :half], fma32(a, c, -(b * s)))
    assert same_bits(turned[..., half : 2 * half], fma32(b, c, a * s))
    assert same_bits(turned[..., 2 * half :], heads[..., 2 * half :])


def test_rotation_keeps_relative_positions() -> None:
    """What rope is for: q at p and k at p' score by p - p' alone."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 1, 1, 64)).astype(np.float32)
    inv_freq = native.rope_inverse_frequencies(10_000.0, 64)

    def score(position_q: int, position_k: int) -> float:
        turned = []
        for x, position in ((q, position_q), (k, position_k)):
            x = x.copy()
            table = native.rope_table(BEST, np.array([position], np.int32), inv_freq)
            native.rope_rows(BEST, x, *table)
            turned.append(x.astype(np.float64).reshape(-1))
        return float(turned[0] @ turned[1])

    assert abs(score(17, 5) - score(100_017, 100_005)) < 1e-4
    assert abs(score(17, 5) - score(17, 6)) > 1e-2
