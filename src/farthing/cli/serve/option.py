"""An option of ``farthing serve``."""

from __future__ import annotations

from typing import Any

import typer

from farthing.cli.serve.spellings import variables

Names = list[str] | None


def flag(*names: str, metavar: str | None = None, shows: bool = False, **rest: Any) -> Any:
    """An option, and a variable for each of its names; its default is shown if it says much."""
    return typer.Option(
        *names,
        metavar=metavar,
        show_default=shows,
        envvar=variables(names),
        show_envvar=False,
        **rest,
    )
