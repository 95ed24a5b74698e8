"""What the book measured on this architecture, measured on the default model: each direction."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest

from farthing.evaluation.inspection.inspect import Inspection, Settings, inspect
from farthing.evaluation.inspection.matrices import short_name
from farthing.evaluation.inspection.outliers import largest_point, reigns

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Unwatched:
    """An observer that does not care."""

    def rounding(self, done: int, total: int) -> None: ...
    def loading(self, done: int, total: int) -> None: ...
    def reading(self, done: int, total: int) -> None: ...


@pytest.fixture(scope="module")
def found(qwen_gguf: Path) -> Inspection:
    return inspect(qwen_gguf, Settings(), Unwatched())


@pytest.fixture(scope="module")
def means(found: Inspection) -> dict[str, float]:
    assert found.errors is not None
    return {each.scheme: each.mean for each in found.errors}


def test_the_model_has_the_projections_of_the_book(found: Inspection) -> None:
    layers = found.matrices.layers
    assert len(layers) == 168
    assert sum(matrix.size for matrix in layers) == 357_826_560
    assert found.errors is not None
    bits = {each.scheme: each.bits_per_weight for each in found.errors}
    assert bits["w4g128"] == 4.125
    assert bits["nf4g64"] == bits["w4g64"] == 4.25


def test_int4_with_one_scale_a_matrix_collapses(found: Inspection, means: dict[str, float]) -> None:
    assert found.errors is not None
    (tensor,) = (each for each in found.errors if each.scheme == "w4tensor")
    assert means["w4tensor"] == max(means.values()) > 0.5
    assert tensor.worst[1] > 0.95
    assert means["w4tensor"] > 3 * means["w4row"]


def test_smaller_groups_and_better_levels_each_help(means: dict[str, float]) -> None:
    """What the blocks do (w4g64), and what the levels do beside (nf4g64)."""
    assert means["w4row"] > means["w4g128"] > means["w4g64"] > means["nf4g64"]
    assert means["nf4g64"] < 0.8 * means["w4g128"]
    assert means["w8tensor"] > 4 * means["w8row"] > 4 * means["w8g128"]
    assert max(means["w8row"], means["w8g128"]) < means["nf4g64"] / 4


def test_a_few_weights_set_the_step_of_the_worst_matrix(found: Inspection, qwen_gguf: Path) -> None:
    """The figures of NumPy for what the ``gguf`` package makes of the file's blocks."""
    assert found.anatomy is not None
    anatomy = found.anatomy.anatomy
    assert short_name(anatomy.matrix).endswith("mlp.down_proj")
    layer = anatomy.matrix.split(".")[2]
    (tensor,) = (
        t for t in gguf.GGUFReader(qwen_gguf).tensors if t.name == f"blk.{layer}.ffn_down.weight"
    )
    weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
    assert anatomy.shape == weights.shape == (896, 4864)
    assert anatomy.max_abs == np.abs(weights).max()
    assert abs(weights[anatomy.max_at]) == anatomy.max_abs
    assert anatomy.beyond == (np.abs(weights) > 6 * weights.std()).sum()
    assert math.isclose(anatomy.std, weights.std(), rel_tol=weights.size * 2.0**-53)
    assert anatomy.max_to_std > 20
    assert 0 < anatomy.beyond < anatomy.weights / 1000
    steps = {each.scheme: each for each in anatomy.steps}
    assert steps["w4tensor"].used < 10
    assert steps["w4tensor"].zeros > 0.99 * anatomy.weights > 2 * steps["w4row"].zeros
    assert steps["w4tensor"].median_step > 10 * steps["w4row"].median_step


def test_one_dimension_stays_the_largest_over_most_layers(found: Inspection) -> None:
    assert found.outliers is not None
    points = found.outliers.points
    longest = max(reigns(points), key=lambda reign: reign.layers)
    assert longest.layers >= 16
    worst = largest_point(points).all_tokens
    assert worst.top(1)[0].dimension == longest.dimension
    assert worst.maximum > 300 * worst.median
    assert worst.top(1)[0].position == 0, "the first token, to which attention goes"
    assert sum(worst.octaves().values()) == 896


def test_int8_with_one_scale_wastes_its_levels_on_four_dimensions(found: Inspection) -> None:
    assert found.levels is not None
    both = found.levels.all_tokens
    assert both.whole.scale == both.whole.maximum / 127
    assert both.whole.used < 32
    assert both.whole.on_one_level > 896 / 2
    assert both.rest.used > 2 * both.whole.used
    assert both.ratio is not None
    assert both.ratio > 8
    assert both.rest.on_one_level < 896 / 100
