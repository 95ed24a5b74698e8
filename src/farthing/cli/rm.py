"""``farthing rm``: remove a fetched model."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_installed(incomplete: str) -> list[str]:
    """Names of fetched models that begin with what was typed, for the shell."""
    from farthing import catalog

    here = [model.name for model in catalog.installed()]
    broken = [model.name for model in catalog.unfinished()]
    return [name for name in here + broken if name.startswith(incomplete)]


def rm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A fetched model's name.", autocompletion=complete_installed
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a fetched model from the cache folder."""
    from farthing import catalog
    from farthing.cli.terminal import human_bytes

    if not yes:
        question = _question(name)
        if question is not None:
            typer.confirm(question, abort=True)
    freed = catalog.remove(name)
    typer.echo(f"Removed {name}, {human_bytes(freed)} freed.")


def _question(name: str) -> str | None:
    """What to ask before removing; None if there is nothing to remove."""
    from farthing import catalog
    from farthing.cli.terminal import human_bytes

    entry = catalog.find(name)
    known = entry.name if entry is not None else name.strip()
    for model in catalog.installed():
        if model.name == known and model.owned:
            return f"Remove {known} ({human_bytes(model.bytes)}, {model.path})?"
        if model.name == known:
            return f"Forget {known}? Its file stays where it is used in place ({model.path})."
    for broken in catalog.unfinished():
        if broken.name == known:
            return f"Remove what came of {known} ({human_bytes(broken.done)})?"
    return None
