"""Paged attention: the contract's arithmetic bit for bit, the truth, and independence of layout."""

from __future__ import annotations

import numpy as np
import pytest

from support.kv_types import kv_type_params

from .attention_model import (
    BLOCK,
    SPAN,
    Cache,
    exact_order,
    plain,
    rounded,
    sides,
    truth,
)
from .float32_model import BEST, ISAS, Floats, hostile, native, same_bits

KV_TYPES = kv_type_params()
WITH_CODES = kv_type_params("fp32", "fp16")


def case(
    tokens: int, kv_heads: int, group: int, head_dim: int, seed: int = 0, wild: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Queries (tokens, kv_heads * group, head_dim); keys, values (tokens, kv_heads, head_dim)."""
    rng = np.random.default_rng(seed)
    shapes = [(tokens, kv_heads * group, head_dim)] + [(tokens, kv_heads, head_dim)] * 2
    if wild:
        q, k, v = (np.clip(hostile(rng, shape), -6e4, 6e4) for shape in shapes)
        return q, k, v
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return q * np.float32(1.5), k, v


def first_visible(position: int, window: int) -> int:
    return max(0, position - window + 1) if window else 0


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("head_dim", [16, 32, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 2, 7, 8])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (21, 0.0), (0, 30.0), (5, 20.0)])
def test_every_isa_gives_the_same_bits(
    kv_type: str, head_dim: int, group: int, window: int, softcap: float
) -> None:
    tokens = 53
    q, k, v = case(tokens, 2, group, head_dim, seed=head_dim + group, wild=True)
    options = {"window": window, "softcap": softcap, "scale": head_dim**-0.5}
    results = [Cache(isa, kv_type, k, v).store().attend(q, 0, **options) for isa in ISAS]
    assert np.isfinite(results[0]).all()
    # Codes that share a scale with an outlier are mostly zeros, and of 4 bits nearly all.
    share = {"fp32": 10, "fp16": 10, "int8": 50, "int4": 200}[sides(kv_type)[1]]
    assert np.unique(results[0]).size > results[0].size // share
    assert all(same_bits(r, results[0]) for r in results[1:])


@pytest.mark.parametrize("group", [3, 5, 6, 9, 15, 33, 64, 112, 113, 230])
def test_any_number_of_query_heads_to_a_kv_head(group: int) -> None:
    q, k, v = case(37, 1, group, 16, seed=group)
    results = [Cache(isa, "fp16", k, v).store().attend(q, 0) for isa in ISAS]
    assert all(same_bits(r, results[0]) for r in results[1:])
    for head in {0, group // 2, group - 1}:
        alone = Cache(BEST, "fp16", k, v).store()
        single = alone.attend(np.ascontiguousarray(q[:, head : head + 1]), 0)
        assert same_bits(single[:, 0], results[0][:, head])


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("head_dim", "group"), [(16, 1), (64, 7), (80, 2)])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (19, 0.0), (0, 30.0)])
def test_the_order_of_the_contract(
    kv_type: str, head_dim: int, group: int, window: int, softcap: float
) -> None:
    tokens = 50
    q, k, v = case(tokens, 2, group, head_dim, seed=1)
    caches = [Cache(isa, kv_type, k, v).store() for isa in ISAS]
    results = [c.attend(q, 0, window=window, softcap=softcap) for c in caches]
    for position in (0, 1, 15, 16, 17, 31, 40, 49):
        first = first_visible(position, window)
        for head in range(2):
            expected = exact_order(
                q[position, head * group : (head + 1) * group],
                caches[0].stored(head).until(position + 1),
                first,
                softcap=softcap,
            )
            for result in results:
                assert same_bits(result[position, head * group : (head + 1) * group], expected)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("window", [0, 1100])
def test_spans_are_merged_in_the_order_of_the_contract(kv_type: str, window: int) -> None:
    """A context of more than two spans, whole and through a window that starts inside one.

    Other spans, or none, have other bits.
    """
    tokens = 2 * SPAN + 77
    q, k, v = case(tokens, 1, 2, 16, seed=2)
    q = np.ascontiguousarray(q[-1:])
    caches = [Cache(isa, kv_type, k, v).store() for isa in ISAS]
    results = [
        cache.attend(q, tokens - 1, window=window, parts=parts)
        for cache in caches
        for parts in (0, 1, 2, 3)
    ]
    assert all(same_bits(r, results[0]) for r in results[1:])
    stored, first = caches[0].stored(), first_visible(tokens - 1, window)
    assert same_bits(results[0][0], exact_order(q[0], stored, first))
    for span_tokens in (SPAN // 2, 4 * SPAN):
        other = exact_order(q[0], stored, first, span_tokens=span_tokens)
        assert not same_bits(results[0][0], other)
        assert np.abs(results[0][0] - other).max() < 1e-5  # the same result, to rounding


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("group", "head_dim"), [(1, 16), (7, 64), (16, 80), (113, 16)])
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (1500, 20.0), (1040, 0.0)])
def test_a_tile_in_parts_gives_the_bits_of_the_whole(
    kv_type: str, group: int, head_dim: int, window: int, softcap: float
) -> None:
    """Of several rows too, of which only the first see the oldest span."""
    position, rows = 3 * SPAN + 14, 5
    q, k, v = case(position + rows, 2, group, head_dim, seed=group)
    q = np.ascontiguousarray(q[position:])
    options = {"window": window, "softcap": softcap, "tiles": [rows]}
    for isa in ISAS[-2:]:
        cache = Cache(isa, kv_type, k, v).store()
        whole = cache.attend(q, position, **options)
        assert np.isfinite(whole).all()
        for parts in (2, 3, 4):
            assert same_bits(cache.attend(q, position, parts=parts, **options), whole)


@pytest.mark.parametrize("isa", ISAS)
def test_a_window_may_leave_a_span_within_a_tile(isa: str) -> None:
    """Some queries of a tile start in the span before, others only in this one."""
    tokens, window, begin = 1105, 50, 1025
    q, k, v = case(tokens, 1, 2, 16, seed=12)
    cache = Cache(isa, "fp32", k, v).store()
    rows = np.ascontiguousarray(q[begin:])
    whole = cache.attend(rows, begin, window=window, tiles=[80])
    assert same_bits(cache.attend(rows, begin, window=window, tiles=[1] * 80), whole)
    for position in (1025, 1072, 1073, 1074, 1104):
        first = first_visible(position, window)
        expected = exact_order(q[position], cache.stored().until(position + 1), first)
        assert same_bits(whole[position - begin], expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_regrouped_reduction_has_other_bits(isa: str, kv_type: str) -> None:
    """What the tests above would catch: the same attention, each step in another order."""
    q, k, v = case(48, 1, 4, 64, seed=3)
    cache = Cache(isa, kv_type, k, v).store()
    ours = cache.attend(q[-1:].copy(), 47)[0]
    stored = cache.stored()
    assert same_bits(ours, exact_order(q[-1], stored, 0))
    # Dimensions reversed: only the order of each score's chain differs.
    turned = stored._replace(k=np.ascontiguousarray(stored.k[:, ::-1]))
    by_dimensions = exact_order(np.ascontiguousarray(q[-1][:, ::-1]), turned, 0)
    # Tokens of each block reversed: only the order of the sums over tokens differs.
    mirrored = np.arange(48).reshape(-1, BLOCK)[:, ::-1].reshape(-1)
    # Blocks in another order: the running maximum and its rescaling differ.
    rolled = np.roll(np.arange(48), BLOCK)
    by_tokens = [exact_order(q[-1], stored.at(order), 0) for order in (mirrored, rolled)]
    for regrouped in (by_dimensions, *by_tokens):
        assert not same_bits(ours, regrouped)
        assert np.abs(ours - regrouped).max() < 1e-5  # the same result, to rounding


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("window", [0, 23])
def test_a_prompt_in_chunks_equals_the_whole(isa: str, kv_type: str, window: int) -> None:
    """Each chunk stores its keys and values, then attends; later slots still hold NaN."""
    tokens = 131
    q, k, v = case(tokens, 2, 7, 32, seed=4, wild=True)
    whole = Cache(isa, kv_type, k, v).store().attend(q, 0, window=window)
    for chunk in (1, 7, 16, 64):
        cache = Cache(isa, kv_type, k, v, seed=chunk)
        for begin in range(0, tokens, chunk):
            end = min(begin + chunk, tokens)
            cache.store(begin, end)
            part = cache.attend(q[begin:end], begin, window=window)
            assert same_bits(part, whole[begin:end])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("group", [1, 7])
def test_tiles_do_not_matter(isa: str, group: int) -> None:
    tokens = 70
    q, k, v = case(tokens, 1, group, 64, seed=5)
    cache = Cache(isa, "fp16", k, v).store()
    whole = cache.attend(q, 0, tiles=[70])
    for tiles in ([1] * 70, [16, 16, 16, 16, 6], [3, 67], [13, 1, 40, 16], [35, 35]):
        assert same_bits(cache.attend(q, 0, tiles=tiles), whole)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 256])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 17, 33])
def test_decoding_equals_prefill(kv_type: str, head_dim: int, group: int) -> None:
    """Few queries take several blocks in a step; nothing of that shows, on any ISA."""
    tokens = 150
    q, k, v = case(tokens, 1, group, head_dim, seed=group, wild=True)
    caches = [Cache(isa, kv_type, k, v).store() for isa in ISAS]
    for window in (0, 77):
        whole = caches[-1].attend(q, 0, window=window)
        for begin, end in ((63, 64), (64, 65), (100, 104), (143, 144), (149, 150)):
            for cache in caches:
                part = cache.attend(q[begin:end], begin, window=window)
                assert same_bits(part, whole[begin:end])


def test_physical_blocks_do_not_matter() -> None:
    q, k, v = case(90, 2, 2, 64, seed=6)
    whole = Cache(BEST, "fp16", k, v, seed=1).store().attend(q, 0)
    for seed in range(2, 6):
        other = Cache(BEST, "fp16", k, v, seed=seed, layers=3, layer=seed % 3).store()
        assert same_bits(other.attend(q, 0), whole)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_what_is_not_visible_is_never_read_into_a_result(isa: str, kv_type: str) -> None:
    """NaN in keys before the window, in later tokens and in other blocks changes no bit."""
    tokens, window, position = 75, 20, 49
    q, k, v = case(tokens, 1, 7, 64, seed=7)
    clean = Cache(isa, kv_type, k, v).store().attend(q[position:55].copy(), position, window=window)
    dirty_k, dirty_v = k.copy(), v.copy()
    for x in (dirty_k, dirty_v):
        x[: position - window + 1] = np.nan
        x[55:] = np.inf
    dirty = Cache(isa, kv_type, dirty_k, dirty_v).store()
    assert same_bits(dirty.attend(q[position:55].copy(), position, window=window), clean)


@pytest.mark.parametrize("isa", ISAS)
def test_nan_stays_with_its_query(isa: str) -> None:
    q, k, v = case(40, 2, 7, 32, seed=8)
    clean = Cache(isa, "fp16", k, v).store().attend(q, 0)
    q[21, 3, 5] = np.nan
    q[30, 9, 0] = np.inf
    result = Cache(isa, "fp16", k, v).store().attend(q, 0)
    assert np.isnan(result[21, 3]).all()
    assert np.isnan(result[30, 9]).all()
    hit = np.zeros((40, 14), bool)
    hit[21, 3] = hit[30, 9] = True
    assert same_bits(result[~hit], clean[~hit])


@pytest.mark.parametrize("isa", ISAS)
def test_values_beyond_fp16_reach_the_result(isa: str) -> None:
    """An overflowing key or value is infinite in the cache, and is not hidden afterwards."""
    q, k, v = case(20, 1, 1, 16, seed=9)
    v[10, 0, 3] = 1e6
    result = Cache(isa, "fp16", k, v).store().attend(q, 0)
    assert np.isfinite(result[:10]).all()
    assert np.isinf(result[10:, 0, 3]).all()
    assert np.isfinite(np.delete(result, 3, axis=2)).all()
    k[12, 0, 0] = 1e6
    q[:, 0, 0] = 1.0
    result = Cache(isa, "fp16", k, v).store().attend(q, 0)
    assert np.isnan(result[12:]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (600, 0.0), (0, 25.0)])
def test_error_against_the_truth_is_that_of_plain_float32(
    isa: str, kv_type: str, window: int, softcap: float
) -> None:
    """At most twice the error of a plain loop on the same rounded keys and values."""
    tokens = 1500
    q, k, v = case(tokens, 1, 16, 64, seed=10)
    q = np.ascontiguousarray(q[-1:])
    cache = Cache(isa, kv_type, k, v).store()
    result = cache.attend(q, tokens - 1, window=window, softcap=softcap)[0]
    stored, first = cache.stored(), first_visible(tokens - 1, window)
    exact = truth(q[0], stored, first, softcap=softcap)
    ours = np.abs(result - exact)
    theirs = np.abs(plain(q[0], stored, first, softcap=softcap) - exact)
    assert ours.max() <= 2 * theirs.max()
    assert np.sqrt((ours**2).mean()) <= 2 * np.sqrt((theirs**2).mean())
    assert exact.std() > 0.01


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", WITH_CODES)
@pytest.mark.parametrize("window", [0, 6])
def test_what_is_not_finite_reaches_every_query_that_sees_its_codes(
    isa: str, kv_type: str, window: int
) -> None:
    """A token's codes share a scale: NaN or infinity anywhere makes its whole head NaN."""
    q, k, v = case(24, 2, 2, 32, seed=13)
    clean = Cache(isa, kv_type, k, v).store().attend(q, 0, window=window)
    assert np.isfinite(clean).all()
    for dirty_k, dirty_v, bad in ((k.copy(), v, np.nan), (k, v.copy(), -np.inf)):
        (dirty_v if dirty_k is k else dirty_k)[10, 1, 31] = bad
        result = Cache(isa, kv_type, dirty_k, dirty_v).store().attend(q, 0, window=window)
        hit = np.zeros((24, 4), bool)
        hit[10 : 10 + window if window else 24, 2:] = True
        assert np.isnan(result[hit]).all()
        assert same_bits(result[~hit], clean[~hit])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("head_dim", [16, 48, 80])
def test_store_kv_rounds_and_places(isa: str, kv_type: str, head_dim: int) -> None:
    """What is not written stays as it was, to the bit."""
    tokens = 37
    _, k, v = case(tokens, 3, 1, head_dim, seed=11, wild=True)
    special = [65504.0, 65519.9, 65520.0, -1e9, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, np.inf, -0.0]
    k[0, 0, : len(special)] = special
    v[-1, 2, : len(special)] = special
    for x in (k, v):
        x[1, 0], x[2, 1], x[3, 2], x[4, 0] = 0.0, -0.0, 1e-31, 1e-30
        x[5, 0, 3], x[6, 1, 3], x[7, 1, :2], x[8, 2, 9] = np.nan, np.inf, (np.inf, np.nan), -np.inf
        x[9, 0], x[10, 1], x[11, 1] = 127.0, -7.0, np.finfo(np.float32).max
        x[12, 0], x[13, 1] = 0.0, -np.finfo(np.float32).smallest_subnormal
        x[12, 0, :8] = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5]  # ties: to even
        x[12, 1, :8] = [-7.0, 0.5, 1.5, 2.5, -0.5, -1.5, 6.5, -6.5]
        x[12, 1, 8:] = 0.0
    cache = Cache(isa, kv_type, k, v).store()
    block, slot = cache.block_table[np.arange(tokens) // BLOCK], np.arange(tokens) % BLOCK
    written = np.zeros((len(cache.planes()[0]), BLOCK), bool)
    written[block, slot] = True
    # Of keys, values and their scales: [block, layer, token, head, dims].
    keys, values = cache.planes()
    planes = keys.transpose(0, 1, 4, 2, 3), values.transpose(0, 1, 3, 2, 4)
    for x, side, plane, scales in zip((k, v), sides(kv_type), planes, cache.scales(), strict=True):
        expected, expected_scales = rounded(x, side)
        assert same_bits(np.ascontiguousarray(plane[block, 1, slot]), expected)
        untouched = plane[:, 1][~written].tobytes() + plane[:, 0].tobytes()
        if scales is not None:
            assert expected_scales is not None
            by_token = scales.transpose(0, 1, 3, 2)
            found = by_token[block, 1, slot]
            assert np.array_equal(found, expected_scales, equal_nan=True)
            assert not np.signbit(found[expected_scales == 0]).any()
            assert np.isnan(found[[5, 7], [0, 1]]).all()
            assert np.isinf(found[[6, 8], [1, 2]]).all()
            untouched += by_token[:, 1][~written].tobytes() + by_token[:, 0].tobytes()
        assert set(untouched) == {0xFF}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("kv_type", "largest"), [("int8", 127), ("int4", 7)])
def test_codes_are_those_of_a_plain_loop(isa: str, kv_type: str, largest: int) -> None:
    """The nearest multiple of absmax / largest in float32, ties to even, and no other."""
    tokens, head_dim = 64, 32
    rng = np.random.default_rng(14)
    k, v = rng.standard_normal((2, tokens, 1, head_dim)).astype(np.float32)
    k[0, 0, :8] = [largest, 0.5, 1.5, 2.5, -0.5, -1.5, largest - 0.5, 0.5 - largest]
    k[0, 0, 8:] = 0.0
    cache = Cache(isa, kv_type, k, v).store()
    keys, values = cache.planes()
    key_scales, value_scales = cache.scales()
    assert key_scales is not None
    assert value_scales is not None
    for t in range(tokens):
        block, slot = cache.block_table[t // BLOCK], t % BLOCK
        for x, codes, scale in (
            (k[t, 0], keys[block, 1, 0, :, slot], key_scales[block, 1, 0, slot]),
            (v[t, 0], values[block, 1, 0, slot], value_scales[block, 1, 0, slot]),
        ):
            absmax = np.float32(max(abs(float(number)) for number in x))
            assert scale == absmax / np.float32(largest)
            inverse = np.float32(largest) / absmax
            for number, code in zip(x, codes, strict=True):
                scaled = float(number * inverse)  # one rounding to float32
                assert code == round(scaled)  # to even
                assert abs(float(code) * float(scale) - float(number)) <= 0.5001 * float(scale)
    first = keys[cache.block_table[0], 1, 0, :8, 0].tolist()
    assert first == [largest, 0, 2, 2, 0, -2, largest - 1, 1 - largest]
    assert [int(x.min()) for x in (keys, values)] == [-largest] * 2


def test_scratch_is_small_and_does_not_know_the_context() -> None:
    sizes = [native.attention_scratch_bytes(dim) for dim in (16, 64, 128, 256)]
    assert sizes == sorted(sizes)
    assert sizes[-1] < 512 * 1024
