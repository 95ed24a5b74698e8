"""Our exp, log, tanh, sin and cos: bounds in ulp, special values, and equal bits on every ISA."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from .float32_model import ISAS, Doubles, Floats, hostile, native, same_bits, ulps

# name, truth, first and last argument, greatest error found over every float between them, in ulp.
FLOAT_FUNCTIONS = [
    ("exp", np.exp, -87.33654, 88.72283, 0.9),
    ("log", np.log, 1e-45, 3.4028234e38, 0.86),
    ("tanh", np.tanh, -3.4028234e38, 3.4028234e38, 1.37),
]


def floats_between(low: float, high: float, count: int) -> Floats:
    """Floats spread evenly over the representable ones, both ends included."""

    def ordered(x: float) -> int:
        bits = int(np.float32(x).view(np.int32))
        return bits if bits >= 0 else -(bits & 0x7FFFFFFF)

    steps = np.linspace(ordered(low), ordered(high), count).astype(np.int64)
    bits = np.where(steps >= 0, steps, -steps | 0x80000000).astype(np.uint32)
    return bits.view(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("name", "truth", "low", "high", "bound"), FLOAT_FUNCTIONS)
def test_float_functions_keep_their_bound(
    isa: str, name: str, truth: Callable[[Doubles], Doubles], low: float, high: float, bound: float
) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            floats_between(low, high, 100_003),
            rng.uniform(max(low, -2), min(high, 2), 100_003).astype(np.float32),
            rng.uniform(max(low, -90), min(high, 90), 100_003).astype(np.float32),
        ]
    )
    x = x[(x >= np.float32(low)) & (x <= np.float32(high))]
    y = getattr(native, name)(isa, x)
    errors = ulps(y, truth(x.astype(np.float64)))
    assert errors.max() <= bound
    assert errors.max() > 0.4  # a correctly rounded function would not need the bound
    assert np.unique(y).size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("name", "truth", "low", "high", "bound"), FLOAT_FUNCTIONS)
def test_bounds_hold_for_every_float(
    name: str, truth: Callable[[Doubles], Doubles], low: float, high: float, bound: float
) -> None:
    worst = 0.0
    for start in range(0, 1 << 32, 1 << 22):
        x = np.arange(start, start + (1 << 22), dtype=np.uint32).view(np.float32)
        x = x[(x >= np.float32(low)) & (x <= np.float32(high))]
        if x.size:
            y = getattr(native, name)(ISAS[-1], x)
            worst = max(worst, float(ulps(y, truth(x.astype(np.float64))).max()))
    assert bound - 0.02 < worst <= bound


@pytest.mark.parametrize("isa", ISAS)
def test_special_values(isa: str) -> None:
    inf, nan = np.inf, np.nan

    def at(name: str, *x: float) -> list[float]:
        return [float(v) for v in getattr(native, name)(isa, np.array(x, np.float32))]

    assert at("exp", 0.0, -0.0, -inf, inf, -100.0, -1e30, 100.0) == [1, 1, 0, inf, 0, 0, inf]
    assert at("log", 1.0, 0.0, -0.0, inf) == [0, -inf, -inf, inf]
    assert at("tanh", inf, -inf, 20.0, -20.0) == [1, -1, 1, -1]
    zeros = native.tanh(isa, np.array([0.0, -0.0], np.float32))
    assert list(np.signbit(zeros)) == [False, True]
    quiet = [nan, -nan]
    payloads = np.array([0x7FC12345, 0xFFFFFFFF, 0x7FC00155], np.uint32).view(np.float32)
    for name in ("exp", "log", "tanh"):
        assert np.isnan(at(name, *quiet)).all()
        assert np.isnan(getattr(native, name)(isa, payloads)).all()
    assert np.isnan(at("log", -1.0, -inf, -1e-45)).all()
    # Nothing lies between 0 and the smallest normal number.
    edge = native.exp(isa, floats_between(-87.4, -87.3, 20_001))
    assert ((edge == 0) | (edge >= np.float32(2.0**-126))).all()
    assert (edge == 0).any()
    assert (edge > 0).any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 33])
def test_arrays_of_any_length(isa: str, count: int) -> None:
    x = np.random.default_rng(count).uniform(0.1, 3, 64).astype(np.float32)
    for name in ("exp", "log", "tanh"):
        function = getattr(native, name)
        assert same_bits(function(isa, x[:count]), function(isa, x)[:count])


def test_every_isa_gives_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [
            hostile(rng, (50_000,)),
            floats_between(-3.4028234e38, 3.4028234e38, 50_000),
            np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32),
        ]
    )
    for name in ("exp", "log", "tanh"):
        results = [getattr(native, name)(isa, x) for isa in ISAS]
        assert all(same_bits(r, results[0]) for r in results[1:])
    angles = rng.uniform(-150_000, 150_000, 50_001)
    pairs = [native.sin_cos_double(isa, angles) for isa in ISAS]
    for sine, cosine in pairs[1:]:
        assert same_bits(sine, pairs[0][0])
        assert same_bits(cosine, pairs[0][1])
    for name, arguments in (
        ("exp_double", rng.uniform(-720, 720, 50_001)),
        ("log_double", rng.lognormal(0, 100, 50_001)),
    ):
        results = [getattr(native, name)(isa, arguments) for isa in ISAS]
        assert all(same_bits(r, results[0]) for r in results[1:])


def mp_ulps(result: Doubles, truth: Callable[[Any], Any], x: Doubles) -> Doubles:
    with mpmath.workdps(40):
        exact = [truth(mpmath.mpf(float(v))) for v in x]
        return np.array(
            [
                float(abs(mpmath.mpf(float(r)) - t) / mpmath.ldexp(1, mpmath.frexp(t)[1] - 53))
                for r, t in zip(result, exact, strict=True)
            ]
        )


@pytest.mark.parametrize("isa", ISAS)
def test_sine_and_cosine_are_right_to_position_131072(isa: str) -> None:
    rng = np.random.default_rng(3)
    multiples = np.rint(rng.uniform(0, 2**18 / (np.pi / 2), 1000)) * (np.pi / 2)
    x = np.concatenate(
        [
            rng.uniform(-(2.0**18), 2.0**18, 1500),
            multiples,  # within an ulp of a quadrant's end, where the reduction cancels most
            np.nextafter(multiples, 0),
            rng.integers(0, 131_073, 500).astype(np.float64),
            rng.lognormal(-3, 3, 500),
            np.array([131_071.0, 131_072.0, 1e-300]),
        ]
    )
    sine, cosine = native.sin_cos_double(isa, x)
    assert mp_ulps(sine, mpmath.sin, x).max() <= 0.8
    assert mp_ulps(cosine, mpmath.cos, x).max() <= 0.8
    zero_sine, zero_cosine = native.sin_cos_double(isa, np.array([0.0, -0.0]))
    assert list(zero_cosine) == [1.0, 1.0]
    assert list(zero_sine) == [0.0, 0.0]


@pytest.mark.parametrize("isa", ISAS)
def test_double_exp_and_log(isa: str) -> None:
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-708, 709, 2000), rng.uniform(-1, 1, 1000)])
    assert mp_ulps(native.exp_double(isa, x), mpmath.exp, x).max() <= 1.0
    positive = np.concatenate([rng.lognormal(0, 100, 2000), rng.uniform(0.5, 2, 1000)])
    assert mp_ulps(native.log_double(isa, positive), mpmath.log, positive).max() <= 0.9
    special = np.array([0.0, -np.inf, np.inf, -746.0, 710.0])
    assert list(native.exp_double(isa, special)) == [1, 0, np.inf, 0, np.inf]
    assert np.isnan(native.exp_double(isa, np.array([np.nan]))).all()
    assert native.log_double(isa, np.array([1.0]))[0] == 0


def imported_symbols(library: Path) -> set[str]:
    """Names of the undefined dynamic symbols of a 64-bit little-endian ELF file."""
    data = library.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for symbol in range(offset, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", data, symbol)
            if section == 0:
                start = strings + name
                names.add(data[start : data.index(b"\0", start)].decode())
    return names


def test_the_library_imports_no_function_of_libm() -> None:
    """Their results differ between versions, so nothing of ours may call them."""
    imported = imported_symbols(Path(native.__file__))
    assert "memcpy" in imported  # the table was found
    roots = "exp exp2 exp10 expm1 log log2 log10 log1p pow sin cos tan sincos asin acos atan atan2"
    roots += " sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma cbrt hypot sqrt fma fmod"
    roots += " remainder rint nearbyint lrint round lround floor ceil trunc ldexp frexp scalbn"
    forbidden = {root + end for root in roots.split() for end in ("", "f", "l")}
    assert imported & forbidden == set()


def test_an_unknown_isa_is_refused() -> None:
    with pytest.raises(ValueError, match="no instruction set is called 'sse9'"):
        native.exp("sse9", np.zeros(1, np.float32))
