"""What ``csrc/quantization`` computes, in plain loops: one float32 operation after another.

The definition of its bits. Written for reading: a group at a time, a column at a time. A group is
rows of values: part of one row, or a whole matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F = np.float32
LANES = 16
COARSE, FINE, TURNS = 20, 3, 8
LONG_GROUP = 128
FIRST_WHOLE, RATIO, FINE_RATIO = F(0.66), F(1.18), F(0.042)


class Lanes:
    """A sum in 16 lanes, column i in lane i % 16, joined by a fixed tree."""

    def __init__(self) -> None:
        self.lanes = [F(0)] * LANES

    def add(self, column: int, value: np.float32) -> None:
        self.lanes[column % LANES] = F(self.lanes[column % LANES] + value)

    def total(self) -> float:
        a = self.lanes
        four = [F(F(a[i] + a[i + 4]) + F(a[i + 8] + a[i + 12])) for i in range(4)]
        return (float(four[0]) + float(four[1])) + (float(four[2]) + float(four[3]))


class Uniform:
    """Levels -2^(bits - 1) .. 2^(bits - 1) - 1."""

    def __init__(self, bits: int) -> None:
        self.low, self.high = F(-(2 ** (bits - 1))), F(2 ** (bits - 1) - 1)
        self.range = self.high
        self.reach = F(2 ** (bits - 1))
        self.first = {2: 0.66, 3: 0.66, 4: 0.66, 5: 0.72, 6: 0.8}.get(bits, 0.88)
        self.last = {2: (2.0, 4.0), 3: (2.0, 4.0), 4: (1.4, 4.0), 5: (1.2, 3.0), 6: (1.1, 2.0)}.get(
            bits, (1.05, 1.5)
        )

    def level(self, t: np.float32) -> np.float32:
        return np.rint(min(max(t, self.low), self.high))

    def code(self, level: np.float32) -> int:
        return int(level - self.low)


class Table:
    """Levels of a codebook; halfway between two is the lower one."""

    def __init__(self, levels: NDArray[np.int8], reach: float | None = None) -> None:
        self.levels = [F(x) for x in levels]
        self.range = min(-self.levels[0], self.levels[-1]) if reach is None else F(reach)
        self.reach = F(127)
        self.first, self.last = 0.66, (1.4, 4.0)

    def level(self, t: np.float32) -> np.float32:
        middles = [F((a + b) * F(0.5)) for a, b in zip(self.levels, self.levels[1:], strict=False)]
        return self.levels[sum(t > middle for middle in middles)]

    def code(self, level: np.float32) -> int:
        return self.levels.index(level)


Levels = Uniform | Table


@dataclass
class Fit:
    product: float
    square: float

    @property
    def gain(self) -> float:
        return self.product * self.product / self.square if self.square else 0.0

    @property
    def scale(self) -> np.float32:
        return F(self.product / self.square) if self.square else F(0)


def weight_of(x: np.float32, method: str) -> np.float32:
    """What an error on the value counts for."""
    return F(abs(x)) if method == "weighted" else F(1)


Rows = NDArray[np.float32]  # of a group, (rows, columns)
Codes = list[list[int]]


def fit(values: Rows, levels: list[list[np.float32]], method: str) -> Fit:
    total = Fit(0.0, 0.0)
    for row, row_levels in zip(values, levels, strict=True):
        products, squares = Lanes(), Lanes()
        for i, (x, level) in enumerate(zip(row, row_levels, strict=True)):
            weighted = F(weight_of(x, method) * level)
            products.add(i, F(weighted * x))
            squares.add(i, F(weighted * level))
        total = Fit(total.product + products.total(), total.square + squares.total())
    return total


def error_of(values: Rows, approximations: list[list[float]], method: str) -> float:
    """Weighted sum of squared differences in double, column after column, row after row."""
    total = 0.0
    for row, near in zip(values, approximations, strict=True):
        error = 0.0
        for x, y in zip(row, near, strict=True):
            error += float(weight_of(x, method)) * ((float(x) - y) * (float(x) - y))
        total += error
    return total


def usable(scale: np.float16) -> bool:
    return scale != 0 and bool(np.isfinite(scale))


def scaled(
    values: Rows, levels: Levels, method: str, whole: bool = False
) -> tuple[Codes, np.float16]:
    """A group in a scheme of one number: codes and scale."""
    largest = F(np.abs(values).max())
    scale = np.float16(F(largest / levels.range))
    assert np.isfinite(scale)
    if scale == 0:
        return [[levels.code(levels.level(F(0)))] * len(row) for row in values], scale
    if method != "absmax":
        scale = searched(values, levels, largest, scale, method, whole)
    return [[levels.code(levels.level(F(x / F(scale)))) for x in row] for row in values], scale


def searched(
    values: Rows,
    levels: Levels,
    largest: np.float32,
    range_scale: np.float16,
    method: str,
    whole: bool,
) -> np.float16:
    first = F(F(levels.first) * levels.reach)
    last = F(F(levels.last[values.shape[1] > LONG_GROUP]) * levels.reach)
    step = F(F(last - first) / F(COARSE - 1))
    gain, scale, place = 0.0, F(0), F(0)

    def attempt(inverse: np.float32) -> None:
        nonlocal gain, scale, place
        factor = F(inverse / largest)
        chosen = [[levels.level(F(x * factor)) for x in row] for row in values]
        tried = fit(values, chosen, method)
        if tried.gain > gain:
            gain, scale, place = tried.gain, tried.scale, inverse

    geometric = F(FIRST_WHOLE * levels.reach)
    for i in range(COARSE):
        inverse = geometric if whole else F(first + F(F(i) * step))
        attempt(inverse)
        attempt(-inverse)
        geometric = F(geometric * RATIO)
    middle = place
    fine = F(middle * FINE_RATIO) if whole else F(step / F(FINE + 1))
    for i in range(-FINE, FINE + 1):
        if i:
            attempt(F(middle + F(F(i) * fine)))

    def judged(half: np.float16) -> tuple[float, Fit]:
        chosen = [[levels.level(F(x / F(half))) for x in row] for row in values]
        near = [[float(half) * float(level) for level in row] for row in chosen]
        return error_of(values, near, method), fit(values, chosen, method)

    best, best_error = range_scale, judged(range_scale)[0]
    for turn in range(TURNS):
        half = to_half(scale)
        if not usable(half):
            break
        error, refit = judged(half)
        if error < best_error:
            best, best_error = half, error
        elif turn:
            break
        scale = refit.scale
    return best


SCALES, PLACES = 17, 3
NARROWING = {  # the narrowest share, in long groups, and the ratio of shares in a whole matrix
    **dict.fromkeys((2, 3, 4, 5), (0.6, 0.2, 0.84)),
    6: (0.75, 0.4, 0.9),
    7: (0.85, 0.6, 0.95),
    8: (0.9, 0.75, 0.97),
}


def affine(
    values: Rows, bits: int, method: str, whole: bool = False
) -> tuple[Codes, np.float16, np.float16]:
    """A group in a scheme with a minimum: codes, scale and minimum."""
    top = F(2**bits - 1)
    low, high = lowest(values), -lowest(-values)
    span = F(high - low)
    pair = np.float16(F(span / top)), np.float16(low)

    def codes_of(scale: np.float16, minimum: np.float16) -> list[list[np.float32]]:
        if scale == 0:
            return [[F(0)] * len(row) for row in values]
        return [[nearest(F(F(x - F(minimum)) / F(scale)), top) for x in row] for row in values]

    if pair[0] != 0 and method != "absmax":
        best, best_error = pair, affine_error(values, codes_of(*pair), *pair, method)
        line = widest_gain(values, low, span, bits, method, whole)
        for turn in range(TURNS):
            tried = to_half(F(line[0])), to_half(F(float(low) + line[1]))
            if not usable(tried[0]) or not np.isfinite(tried[1]):
                break
            codes = codes_of(*tried)
            error = affine_error(values, codes, *tried, method)
            if error < best_error:
                best, best_error = tried, error
            elif turn:
                break
            sums = line_sums(values, low, codes, method)
            if flat(*sums[:3]):
                break
            line = line_of(*sums)
        pair = best
    return [[int(code) for code in row] for row in codes_of(*pair)], *pair


def lowest(values: Rows) -> np.float32:
    """The least value; of zeros of both signs the first, by a row's columns modulo 4."""
    first = values[0, 0]
    for row in values:
        whole = len(row) // 4 * 4
        lanes = [min([row[0], *row[lane:whole:4]]) for lane in range(4)]
        first = min([first, *lanes, *row[whole:]])
    return F(first)


def nearest(t: np.float32, top: np.float32) -> np.float32:
    return np.rint(min(max(t, F(0)), top))


def affine_error(
    values: Rows,
    codes: list[list[np.float32]],
    scale: np.float16,
    minimum: np.float16,
    method: str,
) -> float:
    approximations = [[float(scale) * float(c) + float(minimum) for c in row] for row in codes]
    return error_of(values, approximations, method)


Sums = tuple[float, float, float, float, float]


def line_sums(values: Rows, low: np.float32, codes: list[list[np.float32]], method: str) -> Sums:
    total = (0.0, 0.0, 0.0, 0.0, 0.0)
    for row, row_codes in zip(values, codes, strict=True):
        sums = Lanes(), Lanes(), Lanes(), Lanes(), Lanes()
        for i, (x, code) in enumerate(zip(row, row_codes, strict=True)):
            weight, height = weight_of(x, method), F(x - low)
            weighted = F(weight * code)
            terms = weight, weighted, F(weighted * code), F(weighted * height), F(weight * height)
            for lanes, term in zip(sums, terms, strict=True):
                lanes.add(i, term)
        n, codes_sum, squares, products, heights = (
            before + lanes.total() for before, lanes in zip(total, sums, strict=True)
        )
        total = n, codes_sum, squares, products, heights
    return total


def flat(n: float, codes: float, squares: float) -> bool:
    return n * squares == codes * codes


def line_of(
    n: float, codes: float, squares: float, products: float, heights: float
) -> tuple[float, float]:
    scale = (n * products - codes * heights) / (n * squares - codes * codes)
    return scale, (heights - scale * codes) / n


def widest_gain(
    values: Rows,
    low: np.float32,
    span: np.float32,
    bits: int,
    method: str,
    whole: bool,
) -> tuple[float, float]:
    top = F(2**bits - 1)
    short, long, ratio = map(F, NARROWING[bits])
    narrowest = long if values.shape[1] > LONG_GROUP else short
    step = F(F(F(1.1) - narrowest) / F(SCALES - 1))
    gain, line = 0.0, (0.0, 0.0)
    geometric = F(1.1)
    for i in range(SCALES):
        share = geometric if whole else F(F(1.1) - F(F(i) * step))
        geometric = F(geometric * ratio)
        inverse = F(top / F(share * span))
        for place in range(PLACES):
            shift = F(F(F(F(1) - share) * span) * F(F(place) / F(PLACES - 1)))
            codes = [
                [nearest(F(F(F(x - low) - shift) * inverse), top) for x in row] for row in values
            ]
            sums = line_sums(values, low, codes, method)
            if flat(*sums[:3]):
                continue
            candidate = line_of(*sums)
            tried = candidate[0] * sums[3] + candidate[1] * sums[4]
            if tried > gain:
                gain, line = tried, candidate
    return line


def to_half(value: np.float32) -> np.float16:
    with np.errstate(over="ignore"):
        return np.float16(value)
