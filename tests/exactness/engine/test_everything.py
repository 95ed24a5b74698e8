"""Random settings, and everything that may happen to requests, at once."""

from __future__ import annotations

import pytest

from support.engine_grid import Grid
from support.engine_scenarios import anyhow


@pytest.mark.parametrize("seed", range(3))
def test_everything_at_once(every_grid: Grid, seed: int) -> None:
    anyhow(every_grid, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 40))
def test_everything_at_once_and_more_often(tiny: Grid, seed: int) -> None:
    anyhow(tiny, seed)
