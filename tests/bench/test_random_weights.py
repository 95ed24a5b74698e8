"""Random weights are sane numbers of the size that was reckoned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farthing import _native, machine
from farthing.bench.random_weights import (
    RandomMatrices,
    float_matrix,
    random_weights,
    served_scheme,
    served_schemes,
    weights_bytes,
)
from farthing.bench.shapes import parse_shape
from farthing.bench.target import Needs, make_shape_target
from farthing.errors import InsufficientMemoryError, InvalidParameterError
from farthing.models.registry import build_program
from farthing.quantization.schemes import SCHEME_ALIASES

TINY = "layers=2,hidden=256,intermediate=512,heads=4,kv_heads=2,vocab=300"


def test_every_scheme_that_kernels_have_can_be_made() -> None:
    assert set(served_schemes()) == {row["name"] for row in _native.schemes()}


@pytest.mark.parametrize("alias", SCHEME_ALIASES)
def test_a_scheme_is_found_by_its_alias(alias: str) -> None:
    assert served_scheme(alias).name == SCHEME_ALIASES[alias]


@pytest.mark.parametrize("name", served_schemes())
def test_weights_have_mean_zero_and_the_right_spread(name: str) -> None:
    matrix = RandomMatrices().make(served_scheme(name), 100, 1024)
    assert (matrix.scheme, matrix.rows, matrix.cols) == (name, 100, 1024)
    values = matrix.dequantize(0, 100)
    assert np.isfinite(values).all()
    deviation = 1 / math.sqrt(1024)
    assert abs(values.mean()) < 0.3 * deviation
    assert 0.7 * deviation < values.std() < 1.5 * deviation
    assert len(np.unique(values[:, 0])) > 4  # rows differ


def test_a_matrix_taller_than_what_was_drawn_is_filled_to_its_end() -> None:
    rows, cols = 40_000, 64  # the rows drawn are some 2 MiB
    matrix = RandomMatrices().make(served_scheme("q8_0"), rows, cols)
    last = matrix.dequantize(rows - 3, 3)
    assert (np.abs(last).sum(axis=1) > 0).all()


def test_two_matrices_of_one_width_have_memory_of_their_own() -> None:
    matrices = RandomMatrices()
    first = matrices.make(served_scheme("q4_0"), 32, 64)
    second = matrices.make(served_scheme("q4_0"), 32, 64)
    before = second.dequantize(0, 32)
    np.testing.assert_array_equal(first.dequantize(0, 32), before)
    first.pack(0, np.zeros((32, 36), np.uint8))
    np.testing.assert_array_equal(second.dequantize(0, 32), before)
    assert not first.dequantize(0, 32).any()


@pytest.mark.parametrize("name", ["f16", "q4_0", "q6_k", "w4g128m", "w6row", "nf4g64"])
def test_the_bytes_reckoned_are_those_taken(name: str) -> None:
    program = build_program(parse_shape(TINY))
    row = served_scheme(name)
    weights = random_weights(program, row, 2)
    assert set(weights) == {slot.name for slot in program.weights}
    for slot in program.weights:
        weight = weights[slot.name]
        if len(slot.shape) == 2:
            assert isinstance(weight, _native.Matrix)
            assert (weight.scheme, weight.rows, weight.cols) == (name, *slot.shape)
        else:
            assert isinstance(weight, np.ndarray)
            assert weight.shape == slot.shape
    assert sum(w.nbytes for w in weights.values()) == weights_bytes(program, row)


def test_a_float_matrix_is_its_values() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(float_matrix(values).dequantize(0, 3), values)


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="--scheme 'q9': must be one of f32, f16"):
        served_scheme("q9")
    with pytest.raises(InvalidParameterError, match="q4_k row has a multiple of 256 columns"):
        RandomMatrices().make(served_scheme("q4_k"), 16, 96)


def test_our_own_schemes_take_any_width() -> None:
    values = RandomMatrices().make(served_scheme("w4g128"), 20, 201).dequantize(0, 20)
    assert values.shape == (20, 201)
    assert values[:, 200].any()


def test_a_shape_beyond_memory_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "memory_available", lambda: 3 << 30)
    with pytest.raises(InsufficientMemoryError, match=r"--shape 7B in q4_0 needs [4-5],\d\d\d MiB"):
        make_shape_target("7B", "q4_0", Needs(1, 100), num_threads=1, kv_cache_dtype="fp16")
