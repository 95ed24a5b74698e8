"""What ``farthing inspect`` shows people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from farthing.cli.terminal import console, human_bytes, human_count, print_facts
from farthing.evaluation.inspection.anatomy import SIGMAS
from farthing.evaluation.inspection.inspect import (
    AnatomyFound,
    Inspection,
    LevelsFound,
    OutliersFound,
)
from farthing.evaluation.inspection.levels import LEVELS, Levels
from farthing.evaluation.inspection.matrices import Matrices, short_name
from farthing.evaluation.inspection.outliers import (
    TOP,
    PointOutliers,
    largest_point,
    reigns,
)
from farthing.evaluation.inspection.weight_errors import SchemeErrors

if TYPE_CHECKING:
    from rich.console import Console

_BAR = 40  # characters of the longest bar of a histogram
_SHOWN = 16  # characters of a token's text


def print_inspection(model: str, found: Inspection, method: str) -> None:
    """Facts of the model, then a table for each part."""
    print_facts({"Model": model, **_weight_facts(found.matrices), "Memory": _memory(found)})
    out = console()
    if found.errors is not None:
        _print_errors(out, found.errors, method)
    if found.anatomy is not None:
        _print_anatomy(out, found.anatomy, method)
    if found.outliers is not None:
        _print_outliers(out, found.outliers)
    if found.levels is not None:
        _print_levels(out, found.levels)


def _weight_facts(matrices: Matrices) -> dict[str, str]:
    stored = ", ".join(f"{count} {scheme}" for scheme, count in matrices.stored().items())
    count = human_count(sum(matrix.size for matrix in matrices.layers))
    facts = {"Matrices": f"{len(matrices.layers)} of the layers, {count} weights"}
    facts["Stored as"] = f"{stored}; embedding and head included"
    if matrices.dequantized:
        facts["Note"] = (
            "the file is quantized: weights are its dequantized values, and errors those of "
            "rounding them once more"
        )
    if matrices.routers:
        facts["Left out"] = f"{matrices.routers} routers of experts, which are never rounded"
    return facts


def _memory(found: Inspection) -> str:
    parts = []
    if found.errors is not None or found.anatomy is not None:
        parts.append(f"one matrix at a time, at most {human_bytes(found.matrices.largest_bytes)}")
    if found.loaded_bytes:
        parts.append(f"{human_bytes(found.loaded_bytes)} of weights while the prompt ran")
    return "; then ".join(parts)


def _table(first: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _print_errors(out: Console, schemes: Sequence[SchemeErrors], method: str) -> None:
    out.print(f"\nError of rounding, ‖W − W'‖ / ‖W‖ of each of {len(schemes[0].errors)} matrices")
    out.print(f"Scales by {method}, in fp16; the bits include them.", style="dim")
    table = _table("Scheme", "Bits", "Mean", "Median", "Worst")
    table.add_column("Worst matrix", no_wrap=True)
    for each in schemes:
        name, error = each.worst
        table.add_row(
            each.scheme,
            f"{float(each.bits_per_weight):.4f}",
            *(f"{value:.4f}" for value in (each.mean, each.median, error)),
            short_name(name),
        )
    out.print(table)
    out.print("\nAnd of what is in no mean")
    table = _table("Scheme", *map(short_name, schemes[0].apart))
    for each in schemes:
        table.add_row(each.scheme, *(f"{value:.4f}" for value in each.apart.values()))
    out.print(table)


def _print_anatomy(out: Console, found: AnatomyFound, method: str) -> None:
    anatomy = found.anatomy
    rows, cols = anatomy.shape
    why = "" if found.worst_of is None else f", the worst under {found.worst_of}"
    out.print(f"\nAnatomy of {short_name(anatomy.matrix)}{why}")
    row, column = anatomy.max_at
    print_facts(
        {
            "Weights": f"{anatomy.weights:,} ({rows:,} x {cols:,})",
            "Mean magnitude": f"{anatomy.mean_abs:.5g}",
            "Standard deviation": f"{anatomy.std:.5g}",
            "Largest magnitude": f"{anatomy.max_abs:.5g} at row {row:,}, column {column:,}",
            "Largest / deviation": f"{anatomy.max_to_std:.1f}",
            f"Beyond {SIGMAS} sigma": f"{anatomy.beyond:,} of {anatomy.weights:,} weights "
            f"({anatomy.beyond / anatomy.weights:.4%})",
        }
    )
    out.print(
        f"Scales by {method}. A step is the distance between two levels; zeros are weights that "
        "became 0.",
        style="dim",
    )
    table = _table(
        *("Scheme", "Scales", "Median step", "Largest"),
        *("Levels", "a scale", "Zeros", "Error"),
    )
    for s in anatomy.steps:
        table.add_row(
            s.scheme,
            f"{s.scales:,}",
            *(f"{step:.3g}" for step in (s.median_step, s.largest_step)),
            f"{s.used}/{s.levels}",
            f"{s.used_by_scale:g}",
            f"{s.zeros / anatomy.weights:.2%}",
            f"{s.error:.4f}",
        )
    out.print(table)


def _print_outliers(out: Console, found: OutliersFound) -> None:
    prompt = found.prompt
    out.print("\nOutlier features: largest magnitude of each dimension of the residual stream")
    out.print(
        f"Over {len(prompt.tokens)} tokens of a prompt: {_quoted(prompt.text, 40)}", style="dim"
    )
    table = _table("Layer", "Median")
    table.add_column(f"Top {TOP} dimensions")  # folded where the terminal is narrow
    table.add_column("Its token", no_wrap=True)
    table.add_column("Without\ntoken 0", justify="right", no_wrap=True)
    for point in found.points:
        top = point.all_tokens.top()
        at = top[0].position
        table.add_row(
            "embed." if point.layer is None else str(point.layer),
            _magnitude(point.all_tokens.median),
            ", ".join(f"{o.dimension}: {_magnitude(o.value)}" for o in top),
            f"{at} {_quoted(prompt.spellings[at], _SHOWN)}",
            _magnitude(point.after_first.maximum),
        )
    out.print(table)
    out.print(
        "Its token: where the largest value is; last, the largest of the other tokens.",
        style="dim",
    )
    worst = largest_point(found.points)
    out.print(_summary(found.points, worst))
    _print_octaves(out, worst)


def _summary(points: Sequence[PointOutliers], worst: PointOutliers) -> str:
    longest = max(reigns(points), key=lambda reign: reign.layers)
    span = f"from layer {longest.first_layer} to layer {longest.last_layer}"
    if longest.layers == 1:
        span = f"behind layer {longest.first_layer}"
    text = f"Dimension {longest.dimension} is the largest {span}: {longest.layers} of "
    text += f"{len(points) - 1} layers."
    maxima = worst.all_tokens
    if maxima.median:
        text += f"\nThe largest value, {_magnitude(maxima.maximum)} {_where(worst.layer)}, is "
        text += f"{maxima.maximum / maxima.median:,.0f} times the median dimension's."
    return text


def _print_octaves(out: Console, point: PointOutliers) -> None:
    octaves = point.all_tokens.octaves()
    count = len(point.all_tokens.values)
    out.print(f"\nHistogram of the {count:,} maxima in octaves, {_where(point.layer)}")
    most = max(octaves.values(), default=1)
    table = _table("From", "To", "Dimensions")
    table.add_column("")
    for exponent, dimensions in octaves.items():
        bar = "█" * max(round(_BAR * dimensions / most), min(dimensions, 1))
        table.add_row(
            f"{2.0**exponent:,g}", f"{2.0 ** (exponent + 1):,g}", f"{dimensions:,}", Text(bar)
        )
    out.print(table)


def _print_levels(out: Console, found: LevelsFound) -> None:
    both = found.all_tokens
    apart = ", ".join(map(str, both.dimensions))
    out.print(f"\nLevels used: the residual stream {_where(found.layer)} in INT8, with one scale")
    table = _table("", "All dimensions", f"Without {apart}")
    rows = zip(_levels(both.whole), _levels(both.rest), strict=True)
    for (what, whole), (_, rest) in rows:
        table.add_row(what, whole, rest)
    out.print(table)
    if both.ratio is not None:
        count = len(both.dimensions)
        out.print(f"Without {count} dimensions the scale is {both.ratio:.1f} times smaller.")
    others = found.after_first.whole
    out.print(
        f"Without the first token it is {others.scale:.4f}, and all dimensions use {others.used} "
        "levels."
    )


def _levels(levels: Levels) -> tuple[tuple[str, str], ...]:
    dimensions = len(levels.per_dimension)
    return (
        ("Largest magnitude", _magnitude(levels.maximum)),
        ("Scale, a 127th of it", f"{levels.scale:.4f}"),
        ("Levels used", f"{levels.used} of {LEVELS}"),
        ("  by a dimension, median", f"{float(np.median(levels.per_dimension)):g}"),
        ("  by a dimension, most", f"{levels.per_dimension.max()}"),
        ("Dimensions on one level", f"{levels.on_one_level:,} of {dimensions:,}"),
        ("  which is zero", f"{levels.all_zero:,} of {dimensions:,}"),
        ("Values that became 0", f"{levels.zero_share:.1%}"),
    )


def _magnitude(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _where(layer: int | None) -> str:
    return "of the embeddings" if layer is None else f"behind layer {layer}"


def _quoted(text: str, longest: int) -> str:
    """``text`` between quotes, short, in one line, and with nothing a terminal obeys."""
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return f"“{''.join(c if c.isprintable() else ascii(c)[1:-1] for c in text)}”"
