"""``farthing --version``."""

from __future__ import annotations

import typer


def version() -> str:
    """Version of the installed package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("farthing")
    except PackageNotFoundError:
        return "(not installed)"


def print_version(wanted: bool) -> None:
    """Callback of the option."""
    if wanted:
        typer.echo(f"farthing {version()}")
        raise typer.Exit
