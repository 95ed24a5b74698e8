"""Arrays that start where the kernels' layouts want it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def aligned(values: NDArray[np.uint8], offset: int = 0) -> NDArray[np.uint8]:
    """A writable copy of a vector of bytes, ``offset`` past a multiple of 64."""
    room = np.zeros(values.size + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + values.size]
    copy[:] = values
    return copy
