"""What pictures have in common: a folder that can take them, one style, files that are whole."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from farthing.errors import FarthingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureFormat = Literal["png", "svg"]

# Okabe and Ito's, which the colour-blind tell apart.
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#d55e00", "#e69f00", "#cc79a7", "#000000", "#8c8c8c")
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "font.size": 10,
    "svg.hashsalt": "farthing",  # the same figures are the same bytes
}


def check_drawing(option: str, folder: Path) -> None:
    """Raises :class:`FarthingError` naming ``option`` if nothing can be drawn into ``folder``.

    And ``OSError`` for a name that is too long.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise FarthingError(f"{option}: needs matplotlib; pip install 'farthing[bench]'") from None
    nearest = next(path for path in (folder, *folder.absolute().parents) if _is_there(path))
    if nearest.is_symlink() and not nearest.exists():
        raise FarthingError(
            f"{option} {folder}: {nearest} is a link to nothing; a folder is needed"
        )
    if not nearest.is_dir():
        raise FarthingError(f"{option} {folder}: {nearest} is a file; a folder is needed")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise FarthingError(f"{option} {folder}: {nearest} cannot be written to")


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def plain(text: str) -> str:
    """A name as a figure can show it: no formula, nothing that is no character."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("$", r"\$")


def error_bar(value: float, low: float, high: float) -> list[list[float]]:
    """An interval as matplotlib takes it: distances, which rounding must not make negative."""
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


class PictureFolder:
    """Draws pictures into files of ``folder``, which is made.

    A file is there whole or, if it was there before, as it was. ``drawn`` has the paths.
    """

    def __init__(self, folder: Path, kind: FigureFormat) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.drawn: list[Path] = []
        self._folder = folder
        self._kind = kind

    def draw(self, name: str, size: tuple[float, float], fill: Callable[[Figure], None]) -> None:
        """Has ``fill`` draw a figure of ``size``, inches. Raises ``OSError`` naming its file."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context(_STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of letters that the font lacks, of errors of zero
            figure = Figure(figsize=size, layout="constrained")
            fill(figure)
            self.drawn.append(self._save(figure, self._folder / f"{name}.{self._kind}"))

    def _save(self, figure: Figure, path: Path) -> Path:
        partial = path.with_name(f"{path.stem}.partial{path.suffix}")
        metadata = {"Date": None} if self._kind == "svg" else None
        try:
            figure.savefig(partial, dpi=150, metadata=metadata)
            return partial.replace(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            partial.unlink(missing_ok=True)
