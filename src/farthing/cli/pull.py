"""``farthing pull``: fetch a model before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from farthing.cli.options import Json, complete_model


def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Catalog name (see `farthing list`) or hub id.",
            autocompletion=complete_model,
        ),
    ],
    json: Json = False,
) -> None:
    """Fetch a model into the cache folder.

    Its SHA-256 is checked. A download that broke off goes on where it stopped.
    """
    from farthing import catalog
    from farthing.cli.download import DownloadBar, size_on_disk, why_not_served
    from farthing.cli.terminal import dim, human_bytes, write_json

    problem = why_not_served(name)
    if problem is not None:
        dim(f"{problem}; it is fetched all the same")
    path = catalog.pull(name, progress=DownloadBar())
    nbytes = size_on_disk(path)
    if json:
        write_json({"name": name, "path": str(path), "bytes": nbytes})
    else:
        typer.echo(f"{name} is in {path} ({human_bytes(nbytes)}).")
