"""Options of verbs that draw what they find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from farthing.evaluation.drawing import FigureFormat, check_drawing

DEFAULT_FORMAT: FigureFormat = "png"

Figures = Annotated[
    Path | None,
    typer.Option(
        "--figures",
        metavar="DIR",
        help="Draw what is found into this folder; needs matplotlib.",
        show_default=False,
    ),
]
FigureFormatOption = Annotated[
    FigureFormat | None,
    typer.Option("--figure-format", help="Of the pictures.", show_default=DEFAULT_FORMAT),
]


def require_drawable(figures: Path | None, figure_format: FigureFormat | None) -> None:
    """Refuses a format without pictures, and a folder that can have none."""
    from farthing.cli.unused_options import require_unset

    if figures is None:
        require_unset("--figure-format", figure_format, "is of pictures; name a folder: --figures")
    else:
        check_drawing("--figures", figures)


def tell_drawn(drawn: Sequence[Path], figures: Path) -> None:
    """Says which files there are, beside the answer."""
    from farthing.cli.terminal import dim

    dim(f"{', '.join(file.name for file in drawn)}: in {figures}")
