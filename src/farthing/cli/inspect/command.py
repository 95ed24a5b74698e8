"""``farthing inspect``: errors of a model's weights under each scheme, and its outliers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from farthing.cli.figure_options import (
    DEFAULT_FORMAT,
    FigureFormatOption,
    Figures,
    require_drawable,
    tell_drawn,
)
from farthing.cli.options import (
    SCHEME_NAMES,
    Json,
    Method,
    ModelArgument,
    Threads,
    method_option,
)

if TYPE_CHECKING:
    from farthing.evaluation.inspection.inspect import Part

_PARTS = "errors,anatomy,outliers,levels"
_SCHEMES = "w8tensor,w8row,w8g128,w4tensor,w4row,w4g128,nf4g64,w4g64"
_METHOD: Method = "absmax"


def inspect(
    model: ModelArgument,
    only: Annotated[
        str,
        typer.Option(
            "--only",
            metavar="PART,...",
            help="errors: of every matrix under every scheme. anatomy: one matrix closely. "
            "outliers: the largest dimensions of the residual stream by layer. levels: what INT8 "
            "makes of them.",
        ),
    ] = _PARTS,
    schemes: Annotated[
        str | None,
        typer.Option(
            "--schemes",
            metavar="NAME,...",
            help=f"What weights are rounded to. {SCHEME_NAMES}.",
            show_default=_SCHEMES,
        ),
    ] = None,
    method: Annotated[Method | None, method_option(_METHOD)] = None,
    matrix: Annotated[
        str | None,
        typer.Option(
            "--matrix",
            metavar="NAME",
            help="The matrix for the anatomy, such as layers.3.mlp.down_proj; by default the worst "
            "under the scheme that has the fewest bits and one scale a matrix.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="What the model reads for outliers and levels; by default some plain sentences.",
            show_default=False,
        ),
    ] = None,
    figures: Figures = None,
    figure_format: FigureFormatOption = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure what few bits do to a model: to its weights, and to what flows through it.

    Weights of a quantized file are its dequantized ones. Nothing is written but --figures.
    """
    from farthing import machine
    from farthing.cli.download import fetch
    from farthing.cli.inspect.progress import InspectionProgress
    from farthing.cli.inspect.report import report
    from farthing.cli.inspect.tables import print_inspection
    from farthing.cli.name_lists import split_names
    from farthing.cli.terminal import write_json
    from farthing.evaluation.inspection.figures import draw
    from farthing.evaluation.inspection.inspect import Settings, inspect
    from farthing.evaluation.inspection.residuals import PROMPT
    from farthing.evaluation.inspection.weight_errors import CHAPTER_SCHEMES, find_schemes
    from farthing.program.weights import explain_bus_errors

    parts = _parts(only)
    _require_used(parts, schemes, method, matrix, prompt)
    method = method or _METHOD
    schemes = _SCHEMES if schemes is None else schemes
    settings = Settings(
        parts=parts,
        schemes=split_names("--schemes", schemes, "scheme", CHAPTER_SCHEMES),
        method=method,
        matrix=matrix,
        prompt=PROMPT if prompt is None else prompt,
        num_threads=threads,
    )
    find_schemes(settings.schemes)  # wrong ones are refused before anything is fetched
    require_drawable(figures, figure_format)
    machine.active_isa()  # refuses an impossible FARTHING_ISA before anything is fetched
    path = fetch(model)
    explain_bus_errors(path, may_copy=False)
    progress = InspectionProgress(path.name)
    try:
        found = inspect(path, settings, progress)
    finally:
        progress.finish()
    if json:
        write_json(report(model, found, method))
    else:
        print_inspection(model, found, method)
    if figures is not None:  # last: what was measured is told whatever becomes of the pictures
        tell_drawn(draw(found, figures, figure_format or DEFAULT_FORMAT), figures)


def _parts(text: str) -> frozenset[Part]:
    """Raises :class:`InvalidParameterError` naming the parts there are."""
    from farthing.cli.name_lists import split_names
    from farthing.errors import InvalidParameterError
    from farthing.evaluation.inspection.inspect import PARTS

    names = split_names("--only", text, "part", PARTS)
    for name in names:
        if name not in PARTS:
            raise InvalidParameterError(
                f"--only: no part is called {name!r}; there are {', '.join(PARTS)}"
            )
    return frozenset(part for part in PARTS if part in names)


def _require_used(
    parts: frozenset[Part],
    schemes: str | None,
    method: Method | None,
    matrix: str | None,
    prompt: str | None,
) -> None:
    """Refuses options of parts that are not asked for."""
    from farthing.cli.unused_options import require_unset

    used: tuple[tuple[str, str | None, tuple[Part, ...]], ...] = (
        ("--schemes", schemes, ("errors", "anatomy")),
        ("--method", method, ("errors", "anatomy")),
        ("--matrix", matrix, ("anatomy",)),
        ("--prompt", prompt, ("outliers", "levels")),
    )
    for option, value, needed in used:
        if not parts & set(needed):
            names = " and ".join(needed)
            require_unset(option, value, f"is of {names}, which --only leaves out")
