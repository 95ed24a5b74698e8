"""Filters, masks and edits: the kept tokens and the choice, bit for bit those of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from .float32_model import BEST, ISAS, Floats, hostile, native
from .sampling_model import chosen, final_values, heights, kept

FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 1},
    {"top_k": 40},
    {"top_p": 0.95},
    {"top_p": 1e-9},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"typical_p": 0.9},
    {"typical_p": 1e-9},
    {"top_k": 40, "top_p": 0.9},
    {"top_k": 7, "min_p": 0.2},
    {"top_p": 0.999, "min_p": 1e-4, "typical_p": 0.5},
    {"top_k": 300, "top_p": 0.99, "min_p": 1e-3, "typical_p": 0.8},
]


def packed(allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    bits = np.zeros(-(-allowed.size // 32) * 32, np.uint8)
    bits[: allowed.size] = allowed
    return np.packbits(bits, bitorder="little").view(np.uint32)


levels = st.sampled_from([-np.inf, -30.0, -2.0, -0.0, 0.0, 1.0, 1.5, 1e30, -1e30])
numbers = st.floats(-40, 40, width=32)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Floats, NDArray[np.bool_], dict[int, float]]:
    width = draw(st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 129, 1023, 1025])))
    seed = draw(st.integers(0, 2**32 - 1))
    some = draw(st.lists(st.one_of(levels, numbers), min_size=1, max_size=12))
    rng = np.random.default_rng(seed)
    logits = np.array(some, np.float32)[rng.integers(len(some), size=width)]
    if draw(st.booleans()):
        logits = logits + rng.standard_normal(width).astype(np.float32)
    allowed = rng.random(width) < draw(st.sampled_from([1.0, 0.5, 0.05]))
    tokens = draw(st.lists(st.integers(0, width - 1), max_size=6, unique=True))
    edits = {token: draw(st.one_of(levels, numbers)) for token in sorted(tokens)}
    return logits, allowed, {t: float(np.float32(v)) for t, v in edits.items()}


filters = st.fixed_dictionaries(
    {
        "top_k": st.sampled_from([0, 1, 2, 5, 40, 2000]),
        "top_p": st.one_of(st.just(1.0), st.floats(1e-6, 1)),
        "min_p": st.one_of(st.just(0.0), st.floats(0, 1, width=32)),
        "typical_p": st.one_of(st.just(1.0), st.floats(1e-6, 1)),
    }
)
NO_FILTER = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(rows(), filters, st.sampled_from([0.01, 0.7, 1.0, 5.0]), st.integers(0, 2**64 - 1))
@example((np.zeros(64, np.float32), np.ones(64, bool), {}), NO_FILTER, 1.0, 0)
@example((np.zeros(65, np.float32), np.zeros(65, bool), {3: 5.0}), NO_FILTER, 1.0, 0)
def test_every_instruction_set_keeps_and_draws_what_the_rules_say(
    row: tuple[Floats, NDArray[np.bool_], dict[int, float]],
    filter_by: dict[str, Any],
    temperature: float,
    seed: int,
) -> None:
    logits, allowed, edits = row
    given_row = {"allowed": packed(allowed), "edits": list(edits.items())}
    values = final_values(logits, allowed, edits)
    if values.max() == -np.inf:
        why = -2 if logits.max() > -np.inf else -1
        for isa in ISAS:
            assert native.choose(isa, logits, temperature, seed, **filter_by, **given_row) == why
            assert native.choose(isa, logits, 0.0, **given_row) == why
        return
    expected = kept(values, temperature, **filter_by)
    assert expected.size
    token = chosen(values, expected, temperature, seed, 3, 9)
    for isa in ISAS:
        found = native.kept_tokens(isa, logits, temperature, **filter_by, **given_row)
        assert found.tolist() == expected.tolist()
        drawn = native.choose(isa, logits, temperature, seed, 3, 9, **filter_by, **given_row)
        assert drawn == token
        assert native.choose(isa, logits, 0.0, **given_row) == int(np.argmax(values))


@pytest.mark.parametrize("filter_by", FILTERS, ids=str)
@pytest.mark.parametrize("kind", ["peaked", "broad", "equal", "hostile", "two levels"])
def test_a_real_vocabulary_is_filtered_by_the_same_rules(
    kind: str, filter_by: dict[str, Any]
) -> None:
    width = 151_936
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal(width) * 2.5).astype(np.float32)
    match kind:
        case "peaked":
            logits[rng.integers(width, size=300)] += np.linspace(18, 4, 300, dtype=np.float32)
        case "equal":
            logits[:] = 3.25
        case "hostile":
            logits = hostile(rng, (width,))
        case "two levels":
            logits = np.where(rng.random(width) < 0.3, 2.0, -1.0).astype(np.float32)
        case _:
            logits += rng.exponential(0.8, width).astype(np.float32)
    expected = kept(logits, 0.8, **filter_by)
    token = chosen(logits, expected, 0.8, 5, 0, 2)
    for isa in ISAS if kind in ("peaked", "broad") else ISAS[-1:]:
        found = native.kept_tokens(isa, logits, 0.8, **filter_by)
        np.testing.assert_array_equal(found, expected)
        assert native.choose(isa, logits, 0.8, 5, 0, 2, **filter_by) == token


def test_a_neighbouring_rule_is_told_apart() -> None:
    """The inverse test: one token more or less, or another order, would be seen."""
    rng = np.random.default_rng(4)
    logits = np.round(rng.standard_normal(500) * 2, 1).astype(np.float32)  # many ties
    assert len(native.kept_tokens(BEST, logits, 1.0, top_k=41)) == 41
    by_id = by_kind = 0
    for share in np.linspace(0.05, 0.95, 40):
        nucleus = set(native.kept_tokens(BEST, logits, 1.0, top_p=share).tolist())
        typical = set(native.kept_tokens(BEST, logits, 1.0, typical_p=share).tolist())
        descending = np.lexsort((-np.arange(500), -logits))[: len(nucleus)]
        by_id += nucleus != set(descending.tolist())  # the highest id among equals instead
        by_kind += nucleus != typical
    assert min(by_id, by_kind) > 20


@pytest.mark.parametrize("isa", ISAS)
def test_filters_only_shrink_what_may_be_drawn(isa: str) -> None:
    """Coupling: where the unfiltered choice survives the filters, it is the choice."""
    rng = np.random.default_rng(6)
    same = 0
    for position in range(200):
        logits = (rng.standard_normal(300) * 2).astype(np.float32)
        free = native.choose(isa, logits, 1.0, 8, 0, position)
        tokens = native.kept_tokens(isa, logits, 1.0, top_k=50, top_p=0.9)
        narrow = native.choose(isa, logits, 1.0, 8, 0, position, top_k=50, top_p=0.9)
        assert narrow in tokens
        if free in tokens:
            assert narrow == free
            same += 1
    assert 100 < same < 200


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [1, 15, 64, 65, 1000])
def test_log_probabilities_come_in_order_with_ranks(isa: str, width: int) -> None:
    rng = np.random.default_rng(width)
    logits = np.round(rng.standard_normal(width) * 3, 1).astype(np.float32)
    logits[rng.random(width) < 0.2] = -np.inf
    logits[rng.integers(width)] = 2.0
    order = np.lexsort((np.arange(width), -logits))
    total = np.float32(native.log_sum_exp(isa, logits))
    for n in {0, 1, min(20, width), width}:
        chosen_token = int(rng.integers(width))
        value, rank, best = native.row_logprobs(isa, logits, chosen_token, n)
        assert value == logits[chosen_token] - total
        assert order[rank - 1] == chosen_token
        assert [token for token, _ in best] == order[:n].tolist()
        assert [v for _, v in best] == (logits[order[:n]] - total).tolist()


def test_rows_without_log_probabilities_are_refused() -> None:
    for bad in (np.nan, np.inf):
        logits = np.zeros(100, np.float32)
        logits[3] = bad
        with pytest.raises(ValueError, match="NaN or the highest is not finite"):
            native.row_logprobs(BEST, logits, 0, 5)


def test_heights_of_the_model_are_those_of_the_kernels() -> None:
    """A token far below keeps its place: nothing overflows to NaN."""
    logits = np.array([3e38, -3e38, 0.0], np.float32)
    assert heights(logits, 1e-5)[1] == -np.inf
    for isa in ISAS:
        assert native.kept_tokens(isa, logits, 1e-5, typical_p=0.5).tolist() == [0]
        assert native.choose(isa, logits, 1e-5, 1, 0, 0) == 0
