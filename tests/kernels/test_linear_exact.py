"""Linear kernels give the documented numerics bit for bit, on every instruction set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing import _native
from kernels import linear_numerics as numerics

F32 = NDArray[np.float32]
ISAS = _native.supported_isas()
SIMD = ISAS[1:]
TOKENS = (*range(1, 41), 65, 72)


matrix, odd_cols, heavy_tailed = numerics.matrix, numerics.odd_cols, numerics.heavy_tailed


def assert_same_bits(got: F32, want: F32) -> None:
    np.testing.assert_array_equal(numerics.bits(got), numerics.bits(want))


def test_fused_multiply_add_of_the_reference_rounds_once() -> None:
    from fractions import Fraction

    rng = np.random.default_rng(7)
    scale = np.exp2(rng.integers(-20, 20, 4000)).astype(np.float32)
    a, b = (rng.standard_normal((2, 4000))).astype(np.float32)
    c = (-a.astype(np.float64) * b * (1 + scale * 1e-7)).astype(np.float32)
    a[:64] = np.float32(2**-120) * a[:64]  # results that are denormal
    b[:64] = np.float32(2**-20) * b[:64]
    c[:64] = 0
    got = numerics.fma32(a, b, c)
    for i in range(a.size):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        below = np.nextafter(got[i], np.float32(-np.inf))
        above = np.nextafter(got[i], np.float32(np.inf))
        error = abs(Fraction(float(got[i])) - exact)
        for other in (below, above):
            distance = abs(Fraction(float(other)) - exact)
            assert error < distance or (error == distance and got[i].view(np.uint32) % 2 == 0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_linear_is_the_documented_sum(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(1)
    cols = odd_cols(scheme)
    raw = numerics.random_rows(scheme, 37, cols, rng)
    x = heavy_tailed(rng, (11, cols))
    bias = rng.standard_normal(37).astype(np.float32)
    add = rng.standard_normal((11, 37)).astype(np.float32)
    m = matrix(scheme, raw, cols)
    want = numerics.linear(scheme, raw, x)
    assert np.isfinite(want).all()
    assert np.unique(want).size > 300
    for tokens in (1, 3, 11):
        assert_same_bits(_native.linear(m, x[:tokens], isa), want[:tokens])
    assert_same_bits(_native.linear(m, x, isa, bias=bias), want + bias)
    assert_same_bits(_native.linear(m, x, isa, bias=bias, add=add), (want + bias) + add)
    assert_same_bits(
        _native.linear(m, x, isa, bias=bias, add=add, in_place=True), (want + bias) + add
    )


@pytest.mark.parametrize("isa", SIMD)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_any_number_of_tokens_gives_the_scalar_bits(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(2)
    cols = odd_cols(scheme)
    m = matrix(scheme, numerics.random_rows(scheme, 33, cols, rng), cols)
    x = heavy_tailed(rng, (72, cols))
    want = _native.linear(m, x, "scalar")
    for tokens in TOKENS:
        assert_same_bits(_native.linear(m, x[:tokens], isa), want[:tokens])


@pytest.mark.parametrize("isa", SIMD)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_columns_beyond_one_panel_and_tokens_beyond_one_chunk(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(3)
    if scheme in numerics.CODE_SCHEMES:
        cols = 1024 + odd_cols(scheme)
    else:
        cols = {1: 1031, 32: 1056, 256: 1280}[numerics.BLOCK_COLS[scheme]]
    m = matrix(scheme, numerics.random_rows(scheme, 37, cols, rng), cols)
    x = heavy_tailed(rng, (261, cols))
    assert_same_bits(_native.linear(m, x, isa), _native.linear(m, x, "scalar"))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_any_split_into_calls_gives_the_same_bits(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(4)
    cols = odd_cols(scheme)
    m = matrix(scheme, numerics.random_rows(scheme, 50, cols, rng), cols)
    x = heavy_tailed(rng, (90, cols))
    whole = _native.linear(m, x, isa)
    for _ in range(6):
        blocks = [0, *sorted(rng.integers(0, m.row_blocks + 1, 2)), m.row_blocks]
        tokens = [0, *sorted(rng.integers(0, 91, 3)), 90]
        splits = [
            (int(b0), int(b1), int(t0), int(t1))
            for b0, b1 in itertools.pairwise(blocks)
            for t0, t1 in itertools.pairwise(tokens)
        ]
        rng.shuffle(splits)
        assert_same_bits(_native.linear(m, x, isa, splits=splits), whole)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_nothing_is_written_outside_the_asked_rows(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(5)
    cols = odd_cols(scheme)
    m = matrix(scheme, numerics.random_rows(scheme, 37, cols, rng), cols)
    x = heavy_tailed(rng, (12, cols))
    for tokens in (2, 12):
        got = _native.linear(m, x[:tokens], isa, padding=16)
        assert np.isfinite(got[:, :37]).all()
        assert np.isnan(got[:, 37:]).all()
    part = _native.linear(m, x, isa, splits=[(1, 2, 3, 5)])
    assert np.isfinite(part[3:5, 16:32]).all()
    assert np.isnan(part).sum() == part.size - 2 * 16


@pytest.mark.parametrize("isa", SIMD)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_hard_inputs_give_the_scalar_bits(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(6)
    cols = odd_cols(scheme)
    rows = {
        "outlier": np.where(np.arange(cols) == cols // 2, 1e4, rng.standard_normal(cols)),
        "huge": rng.standard_normal(cols) * 1e36,
        "denormal": rng.standard_normal(cols) * 1e-39,
        "near the zero limit": rng.standard_normal(cols) * 1e-30,
        "zero": np.zeros(cols),
        "negative zero": -np.zeros(cols),
        "equal": np.full(cols, -3.7),
        "alternating": np.where(np.arange(cols) % 2 == 0, 1, -1),
        "infinite": np.where(np.arange(cols) == 3, np.inf, 1),
        "not a number": np.where(np.arange(cols) == 5, np.nan, 1),
        "mixed magnitudes": np.exp2(rng.integers(-60, 60, cols)),
    }
    x = np.stack([row.astype(np.float32) for row in rows.values()])
    for scale in (0.02, 1e-6, 1e4):  # denormal and large fp16 weight scales too
        m = matrix(scheme, numerics.random_rows(scheme, 20, cols, rng, scale), cols)
        want = _native.linear(m, x, "scalar")
        for tokens in (x, x[:3], x[7:8]):
            assert_same_bits(
                _native.linear(m, tokens, isa),
                want if tokens is x else want[:3] if len(tokens) == 3 else want[7:8],
            )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_a_nan_or_infinity_reaches_every_output_of_its_row_and_no_other(
    scheme: str, isa: str
) -> None:
    rng = np.random.default_rng(8)
    cols = odd_cols(scheme)
    m = matrix(scheme, numerics.random_rows(scheme, 17, cols, rng), cols)
    x = rng.standard_normal((10, cols)).astype(np.float32)
    x[2, cols // 2] = np.nan
    x[4, cols - 1] = -np.inf
    got = _native.linear(m, x, isa)
    finite = np.isfinite(got)
    assert not finite[[2, 4]].any()
    assert np.delete(finite, [2, 4], axis=0).all()


@pytest.mark.parametrize("isa", ISAS)
def test_a_codebook_of_any_values_is_served(isa: str) -> None:
    rng = np.random.default_rng(12)
    cols = 229
    x = heavy_tailed(rng, (40, cols))
    codes = rng.integers(0, 16, (19, cols), np.uint8)
    scales = rng.standard_normal((19, 4)).astype(np.float16)
    for codebook in ([-128, 127] * 8, list(range(-128, 128, 16)), [0] * 16):
        levels = np.array(codebook, np.int8)
        m = _native.Matrix("nf4g64", 19, cols, levels)
        m.pack_codes(0, codes, scales.view(np.uint16))
        values = np.zeros((19, 256), np.int64)
        values[:, :cols] = levels[codes]
        one = np.ones((19, 4, 1), np.int64)
        weights = numerics.Weights(
            values.reshape(19, 4, 1, 64), scales.astype(np.float32), one, None, one
        )
        want = numerics.integer_linear(weights, *numerics.quantize(x, 64))
        for tokens in (1, 5, 40):
            assert_same_bits(_native.linear(m, x[:tokens], isa), want[:tokens])
        rows = np.repeat(scales.astype(np.float32), 64, axis=1)[:, :cols] * levels[codes]
        np.testing.assert_array_equal(m.dequantize(0, 19, isa), rows.astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.FLOAT_SCHEMES)
def test_float_sums_err_at_most_twice_as_much_as_a_plain_loop(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(9)
    raw = numerics.random_rows(scheme, 64, 501, rng)
    w = numerics.elements(scheme, raw)
    x = rng.standard_normal((9, 501)).astype(np.float32)
    truth = x.astype(np.float64) @ w.astype(np.float64).T
    plain = np.zeros((9, 64), np.float32)
    for k in range(501):
        plain = plain + x[:, None, k] * w[None, :, k]
    got = _native.linear(matrix(scheme, raw, 501), x, isa)
    plain_error = np.abs(plain - truth)
    error = np.abs(got - truth)
    assert plain_error.max() > 0
    assert error.max() <= 2 * plain_error.max()
    assert error.mean() <= 2 * plain_error.mean()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.FLOAT_SCHEMES)
def test_wide_float_sums_err_at_most_twice_as_much_as_a_blocked_product(
    scheme: str, isa: str
) -> None:
    """The yardstick is torch's float32 product, which adds up in blocks."""
    torch = pytest.importorskip("torch")  # not where tests run in emulation
    cols = 14336
    rng = np.random.default_rng(13)
    raw = numerics.random_rows(scheme, 64, cols, rng)
    w = numerics.elements(scheme, raw)
    x = rng.standard_normal((16, cols)).astype(np.float32)
    truth = x.astype(np.float64) @ w.astype(np.float64).T
    blocked = (torch.from_numpy(x) @ torch.from_numpy(w.copy()).T).numpy()
    got = _native.linear(matrix(scheme, raw, cols), x, isa)

    def error(result: F32) -> float:
        return float(np.sqrt(np.mean((result - truth) ** 2)))

    assert error(got) <= 2 * error(blocked)
    one_chain = numerics.float_linear(w[:8], x[:4], run=cols)
    assert np.sqrt(np.mean((one_chain - truth[:4, :8]) ** 2)) > 2 * error(blocked)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.FLOAT_SCHEMES)
def test_float_chains_end_every_256_columns(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(14)
    for cols in (255, 256, 257, 512, 700):
        raw = numerics.random_rows(scheme, 17, cols, rng)
        x = heavy_tailed(rng, (9, cols))
        want = numerics.linear(scheme, raw, x)
        assert_same_bits(_native.linear(matrix(scheme, raw, cols), x, isa), want)
        one_chain = numerics.float_linear(numerics.elements(scheme, raw), x, run=cols)
        assert (numerics.bits(one_chain) != numerics.bits(want)).any() == (cols > 256)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_a_regrouped_sum_has_other_bits(scheme: str, isa: str) -> None:
    """The inverse: were a kernel to add in another order, the equality above would fail."""
    rng = np.random.default_rng(10)
    cols = 1024
    raw = numerics.random_rows(scheme, 48, cols, rng)
    x = rng.standard_normal((6, cols)).astype(np.float32)
    got = numerics.bits(_native.linear(matrix(scheme, raw, cols), x, isa))
    if scheme in numerics.FLOAT_SCHEMES:
        w = numerics.elements(scheme, raw)
        half = cols // 2
        halves = [numerics.float_linear(w[:, s], x[:, s]) for s in (np.s_[:half], np.s_[half:])]
        backwards = numerics.float_linear(w[:, ::-1], x[:, ::-1])
    else:
        w, (codes, scales) = (
            numerics.decode(scheme, raw, cols),
            numerics.quantize(x, numerics.activation_group(scheme)),
        )
        half = w.codes.shape[1] // 2
        halves = [
            numerics.integer_linear(part(w, s), codes.reshape(6, 2, -1)[:, i], scales[:, s])
            for i, s in enumerate((np.s_[:half], np.s_[half:]))
        ]
        reversed_codes = codes.reshape(6, 2 * half, -1)[:, ::-1].reshape(6, -1)
        backwards = numerics.integer_linear(part(w, np.s_[::-1]), reversed_codes, scales[:, ::-1])
    assert (numerics.bits(halves[0] + halves[1]) != got).mean() > 0.1
    assert (numerics.bits(backwards) != got).mean() > 0.1


def part(w: numerics.Weights, groups: slice) -> numerics.Weights:
    """Some groups of the weights, in that order."""
    return numerics.Weights(
        w.codes[:, groups],
        w.scales[:, groups],
        w.sub_scales[:, groups],
        None if w.minimums is None else w.minimums[:, groups],
        w.sub_minimums[:, groups],
    )


@pytest.mark.slow
@pytest.mark.parametrize("isa", SIMD)
@pytest.mark.parametrize("scheme", numerics.SCHEMES)
def test_every_tile_width_and_height(scheme: str, isa: str) -> None:
    rng = np.random.default_rng(11)
    unit = numerics.BLOCK_COLS.get(scheme, 0)
    widths = range(1, 40) if unit == 1 else range(unit, 1400, unit) if unit else range(7, 1400, 31)
    for cols in widths:
        for rows in (1, 7, 15, 16, 17, 31, 33):
            m = matrix(scheme, numerics.random_rows(scheme, rows, cols, rng), cols)
            x = heavy_tailed(rng, (72, cols))
            want = _native.linear(m, x, "scalar")
            for tokens in TOKENS if rows in (17, 33) else (1, 4, 13):
                assert_same_bits(_native.linear(m, x[:tokens], isa), want[:tokens])


def test_sizes_that_do_not_fit_are_refused_with_both_numbers() -> None:
    m = _native.Matrix("q4_0", 20, 64)
    with pytest.raises(ValueError, match="32 and 64"):
        _native.linear(m, np.zeros((1, 32), np.float32), "scalar")
    with pytest.raises(ValueError, match="19 and 20"):
        _native.linear(m, np.zeros((1, 64), np.float32), "scalar", bias=np.zeros(19, np.float32))
    with pytest.raises(ValueError, match="'mmx'"):
        _native.linear(m, np.zeros((1, 64), np.float32), "mmx")
