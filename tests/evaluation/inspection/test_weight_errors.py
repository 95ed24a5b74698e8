"""Errors of every matrix of a tiny model against plain NumPy."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from farthing.errors import InvalidParameterError, ModelFormatError
from farthing.evaluation.inspection.matrices import Matrices, find_matrices
from farthing.evaluation.inspection.weight_errors import (
    CHAPTER_SCHEMES,
    SchemeErrors,
    find_schemes,
    measure_errors,
    narrowest,
)
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from support.plain_rounding import round_plainly
from support.planted_outliers import MATRIX
from support.tiny_models import make_tiny_model


def matrices_of(path: Path) -> Matrices:
    return find_matrices(open_checkpoint(path, FAMILIES))


def quietly(done: int, total: int) -> None:
    assert 0 <= done <= total


@pytest.fixture(scope="module")
def errors(planted_model: Path) -> dict[str, SchemeErrors]:
    schemes = find_schemes(CHAPTER_SCHEMES)
    found = measure_errors(matrices_of(planted_model).all, schemes, "absmax", 2, quietly)
    return {each.scheme: each for each in found}


@pytest.mark.parametrize("scheme", CHAPTER_SCHEMES)
def test_errors_are_those_of_plain_numpy(
    planted_model: Path, errors: dict[str, SchemeErrors], scheme: str
) -> None:
    tensors = safetensors.numpy.load_file(planted_model / "model.safetensors")
    found = {**errors[scheme].errors, **errors[scheme].apart}
    assert len(found) == 22
    for name, error in found.items():
        expected = round_plainly(tensors[name], scheme).error(tensors[name])
        sums = 2 * tensors[name].size * 2.0**-53  # of squares, in any order
        assert error == pytest.approx(expected, rel=sums, abs=0), name
        assert 0.001 < error < 1


@pytest.mark.parametrize("scheme", CHAPTER_SCHEMES)
def test_the_summary_counts_every_matrix_of_the_layers_once(
    errors: dict[str, SchemeErrors], scheme: str
) -> None:
    found = errors[scheme]
    values = list(found.errors.values())
    assert len(values) == 21
    assert list(found.apart) == ["model.embed_tokens.weight"]
    assert found.mean == pytest.approx(math.fsum(values) / 21, rel=21 * 2.0**-53, abs=0)
    assert found.median == statistics.median(values)
    assert found.worst[1] == max(values) == found.errors[found.worst[0]]


def test_one_weight_ruins_its_matrix_where_all_share_a_scale(
    errors: dict[str, SchemeErrors],
) -> None:
    assert errors["w4tensor"].worst[0] == MATRIX
    assert errors["w4tensor"].errors[MATRIX] > 5 * errors["w4g64"].errors[MATRIX] / 4
    for scheme in ("w4tensor", "w8tensor"):
        others = [error for name, error in errors[scheme].errors.items() if name != MATRIX]
        assert errors[scheme].errors[MATRIX] > 1.5 * max(others)


def test_bits_are_exact(planted_model: Path, errors: dict[str, SchemeErrors]) -> None:
    """Rows of 64 and 176 columns: a last group counts whole."""
    shapes = [matrix.shape for matrix in matrices_of(planted_model).layers]
    weights = sum(rows * cols for rows, cols in shapes)
    assert {cols for _, cols in shapes} == {64, 176}

    def bits(of_row: dict[int, int], of_matrix: int = 0) -> Fraction:
        return Fraction(sum(rows * of_row[cols] + of_matrix for rows, cols in shapes), weights)

    expected = {
        "w8tensor": bits({64: 8 * 64, 176: 8 * 176}, 16),
        "w8row": bits({64: 8 * 64 + 16, 176: 8 * 176 + 16}),
        "w8g128": bits({64: 8 * 128 + 16, 176: 2 * (8 * 128 + 16)}),
        "w4tensor": bits({64: 4 * 64, 176: 4 * 176}, 16),
        "w4row": bits({64: 4 * 64 + 16, 176: 4 * 176 + 16}),
        "w4g128": bits({64: 4 * 128 + 16, 176: 2 * (4 * 128 + 16)}),
        "nf4g64": bits({64: 4 * 64 + 16, 176: 3 * (4 * 64 + 16)}),
        "w4g64": bits({64: 4 * 64 + 16, 176: 3 * (4 * 64 + 16)}),
    }
    assert {name: found.bits_per_weight for name, found in errors.items()} == expected


def test_neither_threads_nor_the_order_of_schemes_change_a_figure(
    planted_model: Path, errors: dict[str, SchemeErrors]
) -> None:
    matrices = matrices_of(planted_model).all
    told: list[tuple[int, int]] = []
    reverse = find_schemes(reversed(CHAPTER_SCHEMES))
    found = measure_errors(matrices, reverse, "absmax", 1, lambda *counts: told.append(counts))
    assert {each.scheme: each for each in found} == errors
    total = sum(matrix.size for matrix in matrices)
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert len(told) == 23


def test_a_search_for_scales_finds_a_smaller_error(
    planted_model: Path, errors: dict[str, SchemeErrors]
) -> None:
    schemes = find_schemes(("w4tensor", "w4g64"))
    for found in measure_errors(matrices_of(planted_model).layers, schemes, "mse", 2, quietly):
        absmax = errors[found.scheme].errors
        assert all(error <= absmax[name] for name, error in found.errors.items())
        assert found.mean < 0.97 * errors[found.scheme].mean
        assert found.apart == {}


def test_schemes_are_found_by_name_and_each_counts_once() -> None:
    names = [scheme.name for scheme in find_schemes(["w4g32", "q4_0", "km4g64", "w2tensor"])]
    assert names == ["q4_0", "km4g64", "w2tensor"]
    assert narrowest(find_schemes(CHAPTER_SCHEMES)).name == "w4tensor"
    assert narrowest(find_schemes(["w4g128", "w3g64", "w8row"])).name == "w3g64"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["w4g65"], "no scheme is called 'w4g65'; there are .*w4g64"),
        (["w4row", "q4_k"], "weights cannot be rounded to 'q4_k'; there are .*nf4g64"),
        (["f16"], "weights cannot be rounded to 'f16'"),
        ([], "no scheme is named"),
    ],
)
def test_other_schemes_are_refused(names: list[str], problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        find_schemes(names)


def test_a_weight_too_large_for_a_scale_is_told_of_its_matrix(tmp_path: Path) -> None:
    directory = make_tiny_model("qwen2-tied", tmp_path / "model")
    file = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["model.layers.1.mlp.up_proj.weight"][2, 7] = np.float32(1e9)
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    matrices = matrices_of(directory).all
    for scheme in ("w4tensor", "w4row", "nf4g64"):
        with pytest.raises(ModelFormatError, match=rf"up_proj.weight: {scheme}: .*fp16"):
            measure_errors(matrices, find_schemes([scheme, "w8row"]), "absmax", 2, quietly)
