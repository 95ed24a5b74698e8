"""How long windows of the text are if nobody says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from farthing.evaluation.settings import WINDOW
from farthing.evaluation.text import MIN_CONTEXT
from farthing.models.checkpoint import open_checkpoint
from farthing.models.registry import FAMILIES
from farthing.program.native import FloatMode


def default_window(models: Sequence[Path], note: Callable[[str], None]) -> int:
    """:data:`WINDOW` tokens, or the whole context of the model that has the least, if it has less.

    ``note`` is told of the second. Raises what opening a model raises.
    """
    with FloatMode():
        contexts = {path: open_checkpoint(path, FAMILIES).config.context_length for path in models}
    path = min(contexts, key=contexts.__getitem__)
    if contexts[path] >= WINDOW:
        return WINDOW
    window = max(contexts[path], MIN_CONTEXT)
    note(f"Windows have {window} tokens instead of {WINDOW}: the context of {path} has no more")
    return window
