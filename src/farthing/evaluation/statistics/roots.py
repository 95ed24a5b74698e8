"""Where a monotonic function takes a value."""

from __future__ import annotations

from collections.abc import Callable


def first_at_least(
    function: Callable[[float], float],
    wanted: float,
    low: float,
    high: float,
    *,
    halvings: int = 40,
) -> float:
    """The smallest x in [low, high] with ``function(x) >= wanted``, of a rising function.

    Above it by no more than the distance halved so often; ``high`` where there is none.
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        if function(middle) >= wanted:
            high = middle
        else:
            low = middle
    return high
