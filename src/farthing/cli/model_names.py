"""What requests may call a model that was named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def model_names(asked: str, path: Path | None, further: Sequence[str]) -> tuple[str, ...]:
    """``further`` names, those of the catalog, that of the file, and what was ``asked`` for.

    The first is the one that answers carry. A path is no name: nobody learns where a model lies.
    ``path`` None: the model is not here yet.
    """
    from farthing.catalog import find_to_fetch

    entry = find_to_fetch(asked)
    catalog = [] if entry is None else [entry.name, *entry.aliases]
    if path is None:
        name = Path(asked).name if Path(asked).exists() else asked
        return tuple(dict.fromkeys([*further, *catalog, name]))
    given = [] if Path(asked).exists() else [asked]
    # A folder that was fetched is called as we call it, which is nobody's name for the model.
    own = [] if given and path.is_dir() else [path.name.removesuffix(".gguf"), path.name]
    return tuple(dict.fromkeys([*further, *catalog, *own, *given]))
