"""Choosing tokens: order among equals, the noise's published vectors, distribution, equal bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from .float32_model import BEST, ISAS, Floats, flat, hostile, native, same_bits, tree_sum

WIDTHS = [1, 2, 15, 16, 17, 63, 64, 65, 1000, 151_936]

# Counter, key, result: the three vectors for philox4x32 with 10 rounds of Random123's kat_vectors.
PHILOX_VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text: str) -> NDArray[np.uint32]:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("counter", "key", "expected"), PHILOX_VECTORS)
def test_philox_gives_the_published_vectors(
    isa: str, counter: str, key: str, expected: str
) -> None:
    low, high = (int(word) for word in words(key))
    result = native.philox(isa, high << 32 | low, words(counter), 1)
    assert list(result[0]) == list(words(expected))


def philox_model(counter: list[int], key: int) -> list[int]:
    c, mask = counter, 0xFFFFFFFF
    k0, k1 = key & mask, key >> 32
    for _ in range(10):
        first, third = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [third >> 32 ^ c[1] ^ k0, third & mask, first >> 32 ^ c[3] ^ k1, first & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c


@pytest.mark.parametrize("isa", ISAS)
def test_philox_counts_tokens_in_the_third_word(isa: str) -> None:
    key = 0x0123456789ABCDEF
    rows = native.philox(isa, key, np.array([7, 9, 100, 3], np.uint32), 37)
    for i in (0, 1, 15, 16, 36):
        assert list(rows[i]) == philox_model([7, 9, 100 + i, 3], key)


@pytest.mark.parametrize("isa", ISAS)
def test_gumbel_noise_follows_its_words(isa: str) -> None:
    seed, choice, position, count = 2**63 + 12345, 2, 77, 200_003
    noise = native.gumbel(isa, seed, choice, position, 0, count)
    tokens = np.arange(count)
    counters, place = tokens // 64 * 16 + tokens % 16, tokens // 16 % 4
    first, second = (
        native.philox(isa, seed, np.array([choice, position, 0, purpose], np.uint32), count)
        for purpose in (0, 1)
    )
    x, z = first[counters, place], second[counters, place]
    u, rest = x.astype(np.float64) / 2**32, (~x).astype(np.float64) / 2**32  # rest = 1 - u
    low, high = x < 2**24, ~x < 2**24
    assert low.any()
    assert high.any()
    u[low] += (z[low] | 1).astype(np.float64) / 2**64
    rest[high] += (~z[high] | 1).astype(np.float64) / 2**64
    exact = -np.log(-np.where(low, np.log(u), np.log1p(-rest)))
    spacing = np.spacing(np.abs(exact).astype(np.float32))
    assert (np.abs(noise - exact) <= np.maximum(spacing, 2.0**-22)).all()  # 1 ulp, of 2 at least
    assert np.isfinite(noise).all()
    # The distribution: mean Euler's constant, variance pi^2 / 6; five standard errors.
    deviation = np.sqrt(np.pi**2 / 6 / count)
    assert abs(float(noise.mean()) - 0.5772156649) < 5 * deviation
    assert abs(float(noise.var()) - np.pi**2 / 6) < 5 * np.sqrt(4.4 * (np.pi**2 / 6) ** 2 / count)
    shifted = native.gumbel(isa, seed, choice, position, 1000, 50)
    assert same_bits(shifted, noise[1000:1050])


@pytest.mark.parametrize("isa", ISAS)
def test_both_ends_of_the_noise_are_fine(isa: str) -> None:
    """Words near all ones and all zeros, where 32 bits would leave steps or repeat themselves."""
    near = np.array([0, 1, 2, 3, 100, 65_535, 2**20, 2**24 + 1, 2**31], np.uint32)
    edges = np.concatenate([near, ~near])
    x, z = (grid.reshape(-1) for grid in np.meshgrid(edges, edges))
    noise = native.gumbel_of_words(isa, x, z)
    with mpmath.workdps(40):
        for got, first, second in zip(noise, x.tolist(), z.tolist(), strict=True):
            fine = min(first, 2**32 - 1 - first) < 2**24
            u = mpmath.mpf((first << 32) + (second | 1 if fine else 0)) / 2**64
            exact = -mpmath.log(-mpmath.log(u))
            spacing = np.spacing(np.float32(max(abs(float(exact)), 2.0)))
            assert abs(float(got - exact)) <= 2 * float(spacing), (first, second)
    assert noise.max() > 44
    assert noise.min() < -3.7
    rising = np.array([0, 1, 2, 3], np.uint32)
    high = native.gumbel_of_words(isa, np.full(4, 2**32 - 1, np.uint32), rising << 30)
    assert (np.diff(high) > 0).all(), "the second word tells tokens apart where the first cannot"


def test_noise_depends_on_seed_choice_position_and_token() -> None:
    base = native.gumbel(BEST, 1, 0, 0, 0, 64)
    assert np.unique(base).size == 64
    others = [(2, 0, 0), (1 + 2**32, 0, 0), (1, 1, 0), (1, 0, 1)]
    for other in others:
        assert not np.any(native.gumbel(BEST, *other, 0, 64) == base)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_argmax_takes_the_lowest_of_equals(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    logits = rng.integers(-50, 50, width).astype(np.float32)
    assert native.choose(isa, logits, 0.0) == int(np.argmax(logits))
    logits = hostile(rng, (width,))
    assert native.choose(isa, logits, 0.0) == int(np.argmax(logits))
    assert native.choose(isa, np.zeros(width, np.float32), 0.0) == 0
    signs = np.copysign(np.zeros(width, np.float32), np.float32(-1))
    signs[-1] = 0.0
    assert native.choose(isa, signs, 0.0) == 0  # zeros of both signs are equal
    last = np.full(width, -np.inf, np.float32)
    last[-1] = -1e30
    assert native.choose(isa, last, 0.0) == width - 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 17, 100, 1000])
def test_rows_without_an_answer_are_refused(isa: str, width: int) -> None:
    choosers: list[Callable[[Floats], int]] = [
        lambda x: native.choose(isa, x, 0.0),
        lambda x: native.choose(isa, x, 1.0, 1, 0, 0),
    ]
    for choose in choosers:
        assert choose(np.full(width, -np.inf, np.float32)) == -1
        assert choose(np.full(width, np.inf, np.float32)) == -1
        for at in (0, width // 2, width - 1):
            logits = np.zeros(width, np.float32)
            logits[at] = np.nan
            assert choose(logits) == -1
    one_infinite = np.zeros(100, np.float32)
    one_infinite[40] = np.inf
    assert native.choose(isa, one_infinite, 0.0) == 40
    assert native.choose(isa, one_infinite, 1.0, 1, 0, 0) == 40


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [w for w in WIDTHS if w < 151_936])
@pytest.mark.parametrize("temperature", [0.05, 0.7, 1.0, 3.0])
def test_sample_is_argmax_of_logits_plus_noise(isa: str, width: int, temperature: float) -> None:
    """The skipping of tokens that cannot win never shows."""
    rng = np.random.default_rng(width)
    t = np.float32(temperature)
    for position in range(20):
        logits = (rng.standard_normal(width) * 6).astype(np.float32)
        logits[rng.random(width) < 0.2] = -np.inf
        logits[rng.integers(width)] = 1.0
        noise = native.gumbel("scalar", 99, 1, position, 0, width)
        scores = (logits - logits.max()) / t + noise
        expected = int(np.argmax(scores))
        assert native.choose(isa, logits, temperature, 99, 1, position) == expected


def test_sample_over_a_real_vocabulary_is_the_same_on_every_isa() -> None:
    rng = np.random.default_rng(11)
    chosen: list[int] = []
    for position in range(10):
        logits = (rng.standard_normal(151_936) * 3).astype(np.float32)
        tokens = {native.choose(isa, logits, 0.9, 5, 0, position) for isa in ISAS}
        noise = native.gumbel(BEST, 5, 0, position, 0, logits.size)
        scores = (logits - logits.max()) / np.float32(0.9) + noise
        assert tokens == {int(np.argmax(scores))}
        chosen += tokens
    assert len(set(chosen)) > 5


def test_sampled_frequencies_match_the_softmax() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0, -3.0, -np.inf], np.float32)
    temperature, draws = 1.5, 60_000
    weights = np.exp(logits.astype(np.float64) / temperature)
    probabilities = weights / weights.sum()
    counts = np.zeros(6)
    for position in range(draws):
        counts[native.choose(BEST, logits, temperature, 2024, 0, position)] += 1
    assert counts[5] == 0
    expected = probabilities[:5] * draws
    chi_square = ((counts[:5] - expected) ** 2 / expected).sum()
    assert chi_square < 23.5  # 4 degrees of freedom: one in ten thousand


@pytest.mark.parametrize("isa", ISAS)
def test_temperature_zero_is_greedy(isa: str) -> None:
    logits = np.random.default_rng(12).standard_normal(500).astype(np.float32)
    for temperature in (0.0, -1.0, 1e-30, 1e-45):
        assert native.choose(isa, logits, temperature, 3, 0, 0) == int(np.argmax(logits))


def log_sum_exp_model(x: Floats) -> np.float32:
    padded = np.full(-(-x.size // 16) * 16, -np.inf, np.float32)
    padded[: x.size] = x
    lanes = np.zeros(16, np.float32)
    terms = flat(native.exp, padded - x.max())
    for columns in terms.reshape(-1, 16):
        lanes = lanes + columns
    return log_of_sum(x, tree_sum(lanes))


def log_of_sum(x: Floats, total: Any) -> np.float32:
    logarithm: np.float32 = native.log("scalar", np.float32(total).reshape(1))[0]
    result: np.float32 = x.max() + logarithm
    return result


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", WIDTHS)
def test_log_sum_exp(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    logits = (rng.standard_normal(width) * 4).astype(np.float32)
    logits[rng.integers(width)] = 20.0
    result = native.log_sum_exp(isa, logits)
    assert result == log_sum_exp_model(logits)
    exact = np.logaddexp.reduce(logits.astype(np.float64))
    plain = np.float32(0)
    for term in np.exp(logits - logits.max()):
        plain = plain + term
    theirs = abs(float(logits.max() + np.log(plain)) - exact)
    assert abs(result - exact) <= max(2 * theirs, 2.0**-19)  # half an ulp of a result near 20


@pytest.mark.parametrize("isa", ISAS)
def test_another_grouping_of_log_sum_exp_differs_in_bits(isa: str) -> None:
    """The inverse test: sums of the same terms in other orders are told apart."""
    rng = np.random.default_rng(3)
    one_chain = eight_lanes = 0
    for _ in range(50):
        logits = (rng.standard_normal(1000) * 4).astype(np.float32)
        logits -= logits.max() + 1  # a result near 0, whose last bits are those of the sum
        result = native.log_sum_exp(isa, logits)
        assert result == log_sum_exp_model(logits)
        terms = flat(native.exp, logits - logits.max())
        lanes = terms.reshape(-1, 8).cumsum(axis=0, dtype=np.float32)[-1]  # adds in order
        lanes = np.pad(lanes, (0, 8))
        one_chain += result != log_of_sum(logits, terms.cumsum(dtype=np.float32)[-1])
        eight_lanes += result != log_of_sum(logits, tree_sum(lanes))
    assert min(one_chain, eight_lanes) > 10


@pytest.mark.parametrize("isa", ISAS)
def test_log_sum_exp_of_special_rows(isa: str) -> None:
    inf = np.inf
    assert native.log_sum_exp(isa, np.array([-inf, -inf], np.float32)) == -inf
    assert native.log_sum_exp(isa, np.array([1.0, inf], np.float32)) == inf
    assert np.isnan(native.log_sum_exp(isa, np.array([1.0, np.nan], np.float32)))
    assert native.log_sum_exp(isa, np.array([5.0] + [-inf] * 40, np.float32)) == 5.0


def cuts(width: int, rng: np.random.Generator) -> list[list[int]]:
    """Ends of pieces: one, every 16 columns, and uneven ones, some of them empty."""
    uneven = sorted(rng.integers(0, width + 1, 5).tolist())
    return [[width], [*range(16, width, 16), width], [*uneven, width]]


def awkward_rows(width: int, rng: np.random.Generator) -> list[Floats]:
    """Ties far apart, both zeros, NaN and infinities at the ends of the row and within."""
    rows = [rng.standard_normal(width).astype(np.float32) for _ in range(10)]
    rows[0][:] = 0.0
    rows[1][:] = np.where(np.arange(width) % 3, np.float32(0), np.float32(-0.0))
    rows[2] = np.round(rows[2])
    rows[3][[0, width - 1]] = 9.0
    rows[4][rng.integers(width)] = np.nan
    rows[5][rng.integers(width)] = np.inf
    rows[6][:] = -np.inf
    rows[7][:] = np.inf
    rows[7][rng.integers(width)] = -1.0
    rows[8][:] = np.inf
    rows[9][:] = -np.inf
    rows[9][width - 1] = -3e38
    return rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 2, 15, 17, 64, 1000, 5003])
def test_a_row_seen_in_pieces_gives_the_greedy_token_of_the_whole(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    for row in awkward_rows(width, rng):
        expected = native.choose(isa, row, 0.0)
        for ends in cuts(width, rng):
            for apart in (False, True):
                assert native.greedy_by_pieces(isa, row, ends, apart) == expected
        if expected >= 0 and width > 1:  # the inverse: a piece left out is missed
            seen = (
                native.greedy_by_pieces(isa, row[:expected], [expected], False) if expected else -1
            )
            assert seen != expected
