"""``farthing list``: the models there are, and those that are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farthing.cli.options import Json

if TYPE_CHECKING:
    from farthing.catalog import InstalledModel
    from farthing.download.store import UnfinishedModel


def list_models(
    installed: Annotated[
        bool, typer.Option("--installed", help="Only those on this machine.")
    ] = False,
    json: Json = False,
) -> None:
    """List the models of the catalog and of this machine."""
    from farthing.cli.terminal import write_json

    rows = model_rows()
    if installed:
        rows = [row for row in rows if row["installed"]]
    if json:
        write_json(rows)
    elif rows:
        _print(rows)
    else:
        typer.echo("No model is on this machine yet; farthing pull NAME fetches one.")


def model_rows() -> list[dict[str, Any]]:
    """The catalog's models in its order, then the others on this machine. Sizes in bytes."""
    from farthing import catalog
    from farthing.models.registry import supported_architectures

    served = supported_architectures()
    here = {model.name: model for model in catalog.installed()}
    broken = {model.name: model for model in catalog.unfinished()}
    rows: list[dict[str, Any]] = []
    for entry in catalog.CATALOG:
        found = here.pop(entry.name, None)
        rows.append(
            {
                "name": entry.name,
                "description": entry.description,
                "bytes": entry.bytes,
                "parameters": entry.parameters,
                "quantization": entry.quantization,
                "license": entry.license,
                "default": entry.name == catalog.DEFAULT_MODEL,
                "served": entry.architecture in served,
                "installed": found is not None,
                "bytes_here": _bytes_here(entry.name, found, broken),
                "path": str(found.path) if found else None,
            }
        )
    return rows + [_other(found) for found in here.values()]


def _other(found: InstalledModel) -> dict[str, Any]:
    """A model that is here and not in the catalog."""
    return {
        "name": found.name,
        "description": None,
        "bytes": found.bytes,
        "parameters": None,
        "quantization": None,
        "license": found.license,
        "default": False,
        "served": None,  # not known before it is opened
        "installed": True,
        "bytes_here": found.bytes,
        "path": str(found.path),
    }


def _bytes_here(name: str, found: InstalledModel | None, broken: dict[str, UnfinishedModel]) -> int:
    if found is not None:
        return found.bytes
    return broken[name].done if name in broken else 0


def _here(row: dict[str, Any]) -> str:
    if row["installed"]:
        return "yes"
    return f"{row['bytes_here'] / row['bytes']:.0%}" if row["bytes_here"] else ""


def _remark(row: dict[str, Any]) -> str:
    if row["served"] is False:
        return " (not served yet)"
    return " (default)" if row["default"] else ""


def _print(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    from farthing.cli.terminal import console, human_bytes, human_count, print_facts

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Name", no_wrap=True)
    table.add_column("Size", justify="right", no_wrap=True)
    table.add_column("Parameters", justify="right")
    table.add_column("Type")
    table.add_column("Licence")
    table.add_column("Here")
    for row in rows:
        table.add_row(
            row["name"] + _remark(row),
            human_bytes(row["bytes"]),
            human_count(row["parameters"]) if row["parameters"] else "",
            row["quantization"] or "",
            row["license"] or "",
            _here(row),
        )
    out = console()
    out.print(table)
    here = {row["name"]: row["path"] for row in rows if row["path"]}
    if here:
        out.print()
        print_facts(here)
