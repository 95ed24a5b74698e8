"""What ``farthing inspect --json`` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from farthing import machine
from farthing.evaluation.inspection.anatomy import SIGMAS
from farthing.evaluation.inspection.inspect import (
    AnatomyFound,
    Inspection,
    LevelsFound,
    OutliersFound,
)
from farthing.evaluation.inspection.levels import Levels, SetAside
from farthing.evaluation.inspection.outliers import DimensionMaxima, largest_point, reigns
from farthing.evaluation.inspection.weight_errors import SchemeErrors


def report(model: str, found: Inspection, method: str) -> dict[str, Any]:
    """Everything that was found, for programs; layers count from 0, sizes are bytes."""
    matrices = found.matrices
    facts: dict[str, Any] = {
        "model": model,
        "format": found.checkpoint.format,
        "architecture": found.checkpoint.config.architecture,
        "isa": machine.active_isa(),
        "weights": {
            "matrices": len(matrices.layers),
            "weights": sum(matrix.size for matrix in matrices.layers),
            "apart": [matrix.name for matrix in matrices.apart],
            "routers_left_out": matrices.routers,
            "stored_as": matrices.stored(),
            "dequantized": matrices.dequantized,
        },
        "memory": {
            "largest_matrix": matrices.largest_bytes,
            "weights_for_the_prompt": found.loaded_bytes,
        },
    }
    if found.errors is not None:
        facts["errors"] = {"method": method, "schemes": [_errors(each) for each in found.errors]}
    if found.anatomy is not None:
        facts["anatomy"] = {"method": method, **_anatomy(found.anatomy)}
    if found.outliers is not None:
        facts["outliers"] = _outliers(found.outliers)
    if found.levels is not None:
        facts["levels"] = _levels(found.levels)
    return facts


def _errors(scheme: SchemeErrors) -> dict[str, Any]:
    name, error = scheme.worst
    return {
        "scheme": scheme.scheme,
        "bits_per_weight": float(scheme.bits_per_weight),
        "bytes": scheme.nbytes,
        "mean": scheme.mean,
        "median": scheme.median,
        "worst": {"matrix": name, "error": error},
        "matrices": dict(scheme.errors),
        "apart": dict(scheme.apart),
    }


def _anatomy(found: AnatomyFound) -> dict[str, Any]:
    anatomy = found.anatomy
    return {
        "matrix": anatomy.matrix,
        "worst_of": found.worst_of,
        "shape": anatomy.shape,
        "mean_abs": anatomy.mean_abs,
        "std": anatomy.std,
        "max_abs": anatomy.max_abs,
        "max_at": anatomy.max_at,
        "max_to_std": anatomy.max_to_std,
        f"beyond_{SIGMAS}_sigma": anatomy.beyond,
        f"beyond_{SIGMAS}_sigma_share": anatomy.beyond / anatomy.weights,
        "steps": [asdict(steps) for steps in anatomy.steps],
        "histogram": {
            "from": -anatomy.max_abs,
            "to": anatomy.max_abs,
            "counts": anatomy.counts.tolist(),
        },
    }


def _outliers(found: OutliersFound) -> dict[str, Any]:
    worst = largest_point(found.points)
    return {
        "prompt": found.prompt.text,
        "tokens": list(found.prompt.tokens),
        "token_texts": list(found.prompt.spellings),
        "largest_at_layer": worst.layer,
        "top_dimension_by_layers": [
            {**asdict(reign), "layers": reign.layers} for reign in reigns(found.points)
        ],
        "points": [
            {
                "layer": point.layer,  # None: the embeddings
                "all_tokens": _maxima(point.all_tokens),
                "without_first_token": _maxima(point.after_first),
            }
            for point in found.points
        ],
    }


def _maxima(maxima: DimensionMaxima) -> dict[str, Any]:
    return {
        "maximum": maxima.maximum,
        "median": maxima.median,
        "top": [asdict(outlier) for outlier in maxima.top()],
        "octaves": {str(k): count for k, count in maxima.octaves().items()},
        "dimensions": maxima.magnitudes.tolist(),
    }


def _levels(found: LevelsFound) -> dict[str, Any]:
    return {
        "layer": found.layer,
        "all_tokens": _set_aside(found.all_tokens),
        "without_first_token": _set_aside(found.after_first),
    }


def _set_aside(both: SetAside) -> dict[str, Any]:
    return {
        "whole": _rounded(both.whole),
        "set_aside": list(both.dimensions),
        "rest": _rounded(both.rest),
        "scale_ratio": both.ratio,
    }


def _rounded(levels: Levels) -> dict[str, Any]:
    return {
        "maximum": levels.maximum,
        "scale": levels.scale,
        "levels_used": levels.used,
        "dimensions": len(levels.per_dimension),
        "dimensions_on_one_level": levels.on_one_level,
        "dimensions_all_zero": levels.all_zero,
        "zero_share": levels.zero_share,
        "levels_by_dimension": levels.per_dimension.tolist(),
        "values_by_level": levels.counts.tolist(),
    }
