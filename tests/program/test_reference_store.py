"""The reference executor's KV store checks itself; hidden states and taps are handed out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from farthing.config import ModelConfig, Rope, RopeScaling
from farthing.errors import InvalidParameterError
from farthing.models.registry import build_program
from farthing.program.kv_types import KV_DTYPES
from farthing.program.reference import (
    ReferenceExecutor,
    inverse_frequencies,
    rounded_to_codes,
)
from farthing.program.step import SequenceRows, StepOutput, step_batch

CONFIG = ModelConfig(
    architecture="llama",
    num_layers=2,
    hidden_size=16,
    intermediate_size=24,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    vocab_size=13,
    context_length=64,
    rms_norm_eps=1e-6,
    rope=Rope(10_000.0, 8),
)


def executor(*, taps: bool = False) -> ReferenceExecutor:
    program = build_program(CONFIG, taps=taps)
    rng = np.random.default_rng(0)
    weights = {slot.name: rng.standard_normal(slot.shape) for slot in program.weights}
    return ReferenceExecutor(program, weights.__getitem__)


def run(reference: ReferenceExecutor, *sequences: SequenceRows) -> StepOutput:
    return reference.run(step_batch(sequences))


TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("token", [-1, 13])
def test_a_token_outside_the_vocabulary_is_an_error(token: int) -> None:
    with pytest.raises(InvalidParameterError, match=rf"tokens: {token} is not in 0\.\.12"):
        run(executor(), SequenceRows([1, token], 0, [0]))


def test_reading_what_no_step_stored_is_an_error() -> None:
    with pytest.raises(InvalidParameterError, match="sequence 0 reads position 0, which no step"):
        run(executor(), SequenceRows([1], 5, [0]))


def test_reading_a_block_that_was_given_away_is_an_error() -> None:
    reference = executor()
    run(reference, SequenceRows(TOKENS, 0, [0, 1]))
    run(reference, SequenceRows(TOKENS, 0, [2, 0]))  # takes block 0 for positions 16 and 17
    with pytest.raises(InvalidParameterError, match="sequence 0 reads position 0, which"):
        run(reference, SequenceRows([1], 18, [0, 1]))


def test_two_rows_in_one_slot_are_an_error() -> None:
    with pytest.raises(InvalidParameterError, match="two rows of a step write the same slot"):
        run(executor(), SequenceRows([1], 0, [0]), SequenceRows([2], 0, [0]))


def test_a_refused_step_stores_nothing() -> None:
    reference, clean = executor(), executor()
    for each in (reference, clean):
        run(each, SequenceRows(TOKENS, 0, [0, 1]))
    with pytest.raises(InvalidParameterError):
        run(reference, SequenceRows([9], 0, [0]), SequenceRows([1], 40, [7, 8, 9]))
    rows = SequenceRows([3], 18, [0, 1])
    assert np.array_equal(run(reference, rows).logits, run(clean, rows).logits)


def test_a_step_may_ask_for_no_logits() -> None:
    result = run(executor(), SequenceRows(TOKENS, 0, [0, 1], logits=0))
    assert result.logits.shape == (0, 13)


def test_hidden_rows_are_the_final_norm_of_the_rows_asked_for() -> None:
    rows = SequenceRows(TOKENS, 0, [0, 1], logits=18, hidden=5)
    result = run(executor(taps=True), rows)
    assert result.hidden is not None
    assert np.array_equal(result.hidden, result.taps["final_norm"][-5:])
    none = run(executor(), replace(rows, hidden=0)).hidden
    assert none is not None
    assert none.shape == (0, 16)


def test_taps_show_every_linear_input_and_change_nothing() -> None:
    rows = SequenceRows(TOKENS, 0, [0, 1], logits=18)
    tapped, plain = run(executor(taps=True), rows), run(executor(), rows)
    assert np.array_equal(tapped.logits, plain.logits)
    assert not plain.taps
    layer = {
        "attention_input": 16,
        "attention_output": 16,
        "mlp_input": 16,
        "mlp_hidden": 24,
        "residual": 16,
    }
    expected = {"embeddings": 16, "final_norm": 16}
    expected |= {f"layers.{i}.{name}": width for i in range(2) for name, width in layer.items()}
    assert {name: array.shape for name, array in tapped.taps.items()} == {
        name: (18, width) for name, width in expected.items()
    }


def test_a_weight_may_come_in_any_float_type() -> None:
    program = build_program(CONFIG)
    rng = np.random.default_rng(0)
    half = {s.name: rng.standard_normal(s.shape).astype(np.float16) for s in program.weights}
    double = {name: array.astype(np.float64) for name, array in half.items()}
    rows = SequenceRows(TOKENS, 0, [0, 1])
    from_half = run(ReferenceExecutor(program, half.__getitem__), rows).logits
    from_double = run(ReferenceExecutor(program, double.__getitem__), rows).logits
    assert from_half.dtype == np.float64
    assert np.array_equal(from_half, from_double)


class TestInverseFrequencies:
    BASE = Rope(500_000.0, 64)

    def scaled(self, scaling: RopeScaling) -> NDArray[np.float64]:
        return inverse_frequencies(replace(self.BASE, scaling=scaling))

    def test_the_first_pair_turns_one_radian_a_token(self) -> None:
        base = inverse_frequencies(self.BASE)
        assert base[0] == 1
        assert base[16] == pytest.approx(500_000.0**-0.5, rel=1e-15)

    def test_linear_divides_all(self) -> None:
        assert np.array_equal(
            self.scaled(RopeScaling("linear", factor=4.0)), inverse_frequencies(self.BASE) / 4
        )

    def test_factors_divide_each(self) -> None:
        factors = tuple(float(i) for i in range(1, 33))
        assert np.array_equal(
            self.scaled(RopeScaling("factors", factors=factors)),
            inverse_frequencies(self.BASE) / np.arange(1, 33),
        )

    def test_llama3_keeps_short_waves_divides_long_ones_and_blends_between(self) -> None:
        base = inverse_frequencies(self.BASE)
        ratio = self.scaled(RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)) / base
        wavelength = 2 * np.pi / base
        kept, divided = wavelength < 8192 / 4, wavelength > 8192 / 1
        assert np.all(ratio[kept] == 1)
        assert np.all(ratio[divided] == 1 / 8)
        between = ratio[~kept & ~divided]
        assert kept.any()
        assert divided.any()
        assert between.size
        assert np.all((between > 1 / 8) & (between < 1))
        assert np.all(np.diff(between) < 0)


@pytest.mark.parametrize("most", [127, 7])
def test_a_store_of_codes_keeps_those_of_each_heads_largest_number(most: int) -> None:
    """Keys and values of (tokens, heads, dim) become whole multiples of largest / most."""
    rng = np.random.default_rng(5)
    heads = rng.standard_normal((7, 3, 16)) * np.float64(10.0) ** rng.integers(-5, 5, (7, 3, 1))
    heads[1, 2], heads[2, 0] = 0, 1e-32
    heads[3, 1, 4], heads[4, 0, 0] = np.nan, -np.inf
    rounded = rounded_to_codes(heads, most)
    assert (rounded[1, 2] == 0).all()
    assert (rounded[2, 0] == 0).all()
    assert np.isnan(rounded[3, 1]).all()
    assert np.isnan(rounded[4, 0]).all()
    usual = np.ones((7, 3), bool)
    usual[[1, 2, 3, 4], [2, 0, 1, 0]] = False
    given = heads[usual].astype(np.float32)
    largest = np.abs(given).max(axis=-1, keepdims=True)
    codes = rounded[usual] / (largest / np.float32(most)).astype(np.float64)
    assert np.array_equal(codes, np.rint(given * (np.float32(most) / largest)))
    assert (np.abs(codes).max(axis=-1) == most).all()


def test_the_store_type_shows_in_what_is_read() -> None:
    program = build_program(CONFIG)
    rng = np.random.default_rng(0)
    weights = {slot.name: rng.standard_normal(slot.shape) for slot in program.weights}
    exact, *stored = (
        run(
            ReferenceExecutor(program, weights.__getitem__, kv_dtype=dtype),
            SequenceRows(TOKENS, 0, [0, 1]),
        ).logits
        for dtype in (None, *KV_DTYPES)
    )
    errors = dict(zip(KV_DTYPES, (np.abs(x - exact).mean() for x in stored), strict=True))
    assert 0 < errors["fp32"] < errors["fp16"] < errors["int8"] < errors["int4"]
    assert errors["int8"] < exact.std()
    assert len(set(errors.values())) == len(errors)
