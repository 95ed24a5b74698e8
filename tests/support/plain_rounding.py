"""Absolute-maximum rounding of a matrix in plain NumPy, for comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Dettmers et al., "QLoRA" (2023), appendix E."""


@dataclass(frozen=True)
class PlainlyRounded:
    """What became of a matrix."""

    values: NDArray[np.float64]  # (rows, cols)
    codes: NDArray[np.int64]  # (rows, cols)
    scales: list[float]
    groups: list[tuple[slice, slice]]  # rows and columns that share each of them

    def error(self, weights: NDArray[np.float32]) -> float:
        """Relative, Frobenius, by NumPy's own norm."""
        exact = weights.astype(np.float64)
        return float(np.linalg.norm(exact - self.values) / np.linalg.norm(exact))


def round_plainly(weights: NDArray[np.float32], scheme: str) -> PlainlyRounded:
    """``weights`` in a symmetric scheme of our naming: w4row, w8tensor, nf4g64.

    Scales are fp16, as they are stored.
    """
    match = re.fullmatch(r"(nf4|w(\d))(tensor|row|g(\d+))", scheme)
    assert match is not None
    rows, cols = weights.shape
    if match[3] == "tensor":
        groups = [(slice(0, rows), slice(0, cols))]
    else:
        step = int(match[4] or cols)
        groups = [
            (slice(r, r + 1), slice(c, min(c + step, cols)))
            for r in range(rows)
            for c in range(0, cols, step)
        ]
    values, codes = np.empty((rows, cols)), np.empty((rows, cols), np.int64)
    scales = []
    for group in groups:
        part = weights[group]
        largest = np.abs(part).max()
        if match[1] == "nf4":
            scale = float(np.float16(largest))
            levels = np.array(NF4, np.float32)
            codes[group] = np.abs(part[..., None] / np.float32(scale) - levels).argmin(axis=-1)
            values[group] = levels[codes[group]] * np.float32(scale)
        else:
            qmax = 2 ** (int(match[2]) - 1) - 1
            scale = float(np.float16(largest / np.float32(qmax)))
            codes[group] = np.clip(np.rint(part / np.float32(scale)), -qmax - 1, qmax)
            values[group] = codes[group] * scale
        scales.append(scale)
    return PlainlyRounded(values, codes, scales, groups)
