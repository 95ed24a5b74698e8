"""Which Farthing this is."""

from __future__ import annotations


def installed_version() -> str | None:
    """Version of the installed package; None where it runs from a source tree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("farthing")
    except PackageNotFoundError:
        return None
