"""What rounding errs is what plain loops over the textbook's definition find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.errors import InvalidParameterError
from farthing.quantization import SCHEMES, Scheme, scheme
from farthing.quantization.chunks import ArrayChunks, row_chunks
from farthing.quantization.error import RoundingError, matrix_error
from farthing.quantization.rounding import ROUNDING_METHODS, RoundingMethod, round_weights
from farthing.quantization.schemes import NF4_LEVELS

F = np.float32
TEXTBOOK = ("w8tensor", "w8row", "w8g128", "w4tensor", "w4row", "w4g128", "w4g64")
CODED = [row for row in SCHEMES.values() if row.coded]


def rounding_error(
    values: NDArray[np.float32], row: Scheme, method: RoundingMethod = "absmax"
) -> RoundingError:
    return matrix_error(ArrayChunks(values), row, method)


def weights(rows: int = 9, cols: int = 200) -> NDArray[np.float32]:
    return (np.random.default_rng(17).standard_t(3, (rows, cols)) * 0.02).astype(np.float32)


def blocks(values: NDArray[np.float32], granularity: str) -> list[NDArray[np.float32]]:
    """Views of what shares a scale."""
    if granularity == "tensor":
        return [values]
    if granularity == "row":
        return [row[None] for row in values]
    group = int(granularity[1:])
    return [
        row[None, start : start + group]
        for row in values
        for start in range(0, values.shape[1], group)
    ]


def textbook(values: NDArray[np.float32], name: str, *, halves: bool = True) -> NDArray[np.float32]:
    """With qmax = 2^(bits-1) - 1, scale = max|W| / qmax, q = clamp(round(W / scale)), q scale.

    ``halves``: with the scale as fp16 holds it, which is how it is stored.
    """
    near = values.copy()
    qmax = 2 ** (int(name[1]) - 1) - 1
    for block in blocks(near, name[2:]):
        scale = F(np.abs(block).max() / F(qmax))
        if halves:
            scale = F(np.float16(scale))
        for at in np.ndindex(block.shape):
            q = min(max(np.rint(F(block[at] / scale)), F(-qmax - 1)), F(qmax))
            block[at] = F(q * scale)
    return near


def published_nf4(values: NDArray[np.float32], granularity: str) -> NDArray[np.float32]:
    """The nearest published level times the largest weight of the block, as fp16 holds it."""
    near = values.copy()
    for block in blocks(near, granularity):
        scale = F(np.float16(np.abs(block).max()))
        for at in np.ndindex(block.shape):
            t = float(F(block[at] / scale))
            block[at] = F(scale * F(min(NF4_LEVELS, key=lambda level, t=t: abs(level - t))))
    return near


def assert_error(error: RoundingError, values: NDArray[np.float32], near: NDArray) -> None:
    """Sums of n numbers in double, in whatever order, are within n roundings of the exact one."""
    squared = math.fsum((values.astype(float) - near.astype(float)).reshape(-1) ** 2)
    squares = math.fsum(values.astype(float).reshape(-1) ** 2)
    bound = values.size * 2.0**-53
    assert abs(error.squared - squared) <= bound * squared
    assert abs(error.squared_weights - squares) <= bound * squares
    assert math.isclose(error.relative, math.sqrt(squared / squares), rel_tol=2 * bound)


@pytest.mark.parametrize("name", TEXTBOOK)
def test_absmax_errs_as_the_textbook_s_loops(name: str) -> None:
    values = weights()
    error = rounding_error(values, scheme(name))
    assert_error(error, values, textbook(values, name))
    with pytest.raises(AssertionError):
        assert_error(error, values, textbook(values, name, halves=False))


@pytest.mark.parametrize("granularity", ["tensor", "row", "g64", "g16"])
def test_nf4_errs_at_its_published_levels(granularity: str) -> None:
    values = weights()
    row = scheme("nf4" + granularity)
    error = rounding_error(values, row)
    assert_error(error, values, published_nf4(values, granularity))
    with pytest.raises(AssertionError):
        assert_error(error, values, round_weights(values, row, "absmax").dequantize())


@pytest.mark.parametrize("method", ROUNDING_METHODS)
def test_all_others_err_as_they_are_served(method: RoundingMethod) -> None:
    values = weights(5, 150)
    for row in CODED:
        if not row.name.startswith("nf4"):
            served = round_weights(values, row, method).dequantize()
            error = rounding_error(values, row, method)
            assert_error(error, values, served)


@pytest.mark.parametrize("name", TEXTBOOK)
def test_scales_as_they_are_stored_cost_little(name: str) -> None:
    """A scale is rounded to eleven bits: weights move by less than a thousandth part."""
    values = weights()
    near = textbook(values, name, halves=False).astype(float)
    pure = float(np.linalg.norm(values - near) / np.linalg.norm(values.astype(float)))
    stored = rounding_error(values, scheme(name)).relative
    assert stored != pure
    assert abs(stored - pure) < 2.0**-11


def test_a_search_is_no_worse_for_nf4_either() -> None:
    values = weights(40, 512)
    for granularity in ("row", "g64", "g128"):
        row = scheme("nf4" + granularity)
        assert rounding_error(values, row, "mse").squared < rounding_error(values, row).squared


def test_a_matrix_of_many_chunks_errs_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = weights(100, 300)
    names = ("w4tensor", "w4tensorm", "w4g64", "nf4tensor", "nf4g64", "km4tensor", "w8row")
    one = [rounding_error(values, scheme(name)) for name in names]
    monkeypatch.setattr("farthing.quantization.chunks._CHUNK_ELEMENTS", 16 * 300)
    assert len(list(row_chunks(100, 300))) == 7
    many = [matrix_error(ArrayChunks(values), scheme(name)) for name in names]
    for a, b in zip(one, many, strict=True):
        assert math.isclose(a.squared, b.squared, rel_tol=values.size * 2.0**-53)
        assert math.isclose(a.relative, b.relative, rel_tol=values.size * 2.0**-53)


def test_errors_of_matrices_add_up() -> None:
    both = weights(32, 64)
    row = scheme("w4g64")
    parts = rounding_error(both[:16], row) + rounding_error(both[16:], row)
    assert math.isclose(parts.relative, rounding_error(both, row).relative, rel_tol=1e-12)
    assert rounding_error(np.zeros((2, 8), np.float32), row).relative == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="cannot be rounded to scheme 'q4_k'"):
        rounding_error(weights(), scheme("q4_k"))
    for name in ("w4tensor", "w4g64", "nf4g64", "nf4tensor", "w4tensorm", "km4g64", "km4tensor"):
        with pytest.raises(InvalidParameterError, match="does not fit fp16"):
            rounding_error(np.array([[1e7, -1e7]], np.float32), scheme(name))
