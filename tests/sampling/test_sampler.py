"""Drawing batches of rows: masks, refusals, and nothing that one row does to another."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.program.native import thread_team
from farthing.sampling.sampler import NOT_FINITE, NOTHING_ALLOWED, SampledRow, Sampler

WIDTH = 1000


def mask_of(width: int, tokens: list[int]) -> NDArray[np.uint32]:
    bits = np.zeros(-(-width // 32) * 32, np.uint8)
    bits[tokens] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


@pytest.fixture(scope="module")
def logits() -> NDArray[np.float32]:
    rng = np.random.default_rng(5)
    return (rng.standard_normal((12, WIDTH)) * 3).astype(np.float32)


def test_only_allowed_tokens_are_drawn(logits: NDArray[np.float32]) -> None:
    sampler = Sampler()
    allowed = [3, 31, 32, 64, 999]
    mask = mask_of(WIDTH, allowed)
    for temperature in (0.0, 1.0, 50.0):
        rows = [SampledRow(temperature, seed, 7, allowed=mask) for seed in range(12)]
        tokens = sampler.draw(logits, rows)
        assert set(tokens) <= set(allowed)
        if temperature == 0:
            assert tokens == [allowed[i] for i in logits[:, allowed].argmax(axis=1)]
        if temperature == 50:
            assert len(set(tokens)) > 2
    everything = mask_of(WIDTH, list(range(WIDTH)))
    rows = [SampledRow(1.0, seed, 7) for seed in range(12)]
    masked = [SampledRow(1.0, seed, 7, allowed=everything) for seed in range(12)]
    assert sampler.draw(logits, rows) == sampler.draw(logits, masked)


def test_a_row_without_a_token_says_why_and_troubles_no_other(
    logits: NDArray[np.float32],
) -> None:
    broken = logits.copy()
    broken[2, 17] = np.nan
    broken[4] = -np.inf
    broken[5, [3, 8]] = -np.inf
    rows = [SampledRow(1.0, seed, 7) for seed in range(12)]
    whole = Sampler().draw(logits, rows)
    rows[3] = SampledRow(1.0, 3, 7, allowed=mask_of(WIDTH, []))
    rows[5] = SampledRow(1.0, 5, 7, allowed=mask_of(WIDTH, [3, 8]))
    expected = list(whole)
    expected[2] = expected[4] = NOT_FINITE
    expected[3] = expected[5] = NOTHING_ALLOWED
    assert Sampler().draw(broken, rows) == expected


def test_place_and_threads_do_not_show(logits: NDArray[np.float32]) -> None:
    rows = [SampledRow(0.0 if i % 4 == 0 else 0.5 * i, 100 + i, i) for i in range(12)]
    alone = [Sampler().draw(logits, [row], [i])[0] for i, row in enumerate(rows)]
    assert len(set(alone)) > 6
    for threads in (1, 2, 3, 16):
        sampler = Sampler(thread_team(threads))
        order = np.random.default_rng(threads).permutation(12).tolist()
        tokens = sampler.draw(logits, [rows[i] for i in order], order)
        assert tokens == [alone[i] for i in order]
        assert sampler.draw(logits, [], []) == []


def test_masks_and_rows_of_another_size_are_refused(logits: NDArray[np.float32]) -> None:
    short = np.zeros(WIDTH // 32, np.uint32)
    with pytest.raises(ValueError, match="one word for each 32 columns"):
        Sampler().draw(logits, [SampledRow(1.0, 1, 1, allowed=short)] * 12)
    with pytest.raises(ValueError, match="not a row of logits"):
        Sampler().draw(logits, [SampledRow(1.0, 1, 1)], [12])
