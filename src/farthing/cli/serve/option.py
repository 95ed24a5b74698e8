"""An option of ``farthing serve``."""

from __future__ import annotations

from typing import Any

import typer

Names = list[str] | None


def flag(*names: str, metavar: str | None = None, shows: bool = False, **rest: Any) -> Any:
    """An option; its default is shown where it says something."""
    return typer.Option(*names, metavar=metavar, show_default=shows, **rest)
