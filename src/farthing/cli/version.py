"""``farthing --version``."""

from __future__ import annotations

import typer

from farthing.version import installed_version


def version() -> str:
    """Version of the installed package, for people."""
    return installed_version() or "(not installed)"


def print_version(wanted: bool) -> None:
    """Callback of the option."""
    if wanted:
        typer.echo(f"farthing {version()}")
        raise typer.Exit
