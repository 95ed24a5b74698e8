"""Refusing to judge a model by what it was made with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from farthing.errors import InvalidParameterError
from farthing.models.checkpoint import Checkpoint
from farthing.texts import calibration_text, overlap


def require_other_text(
    model: Checkpoint, text: str, text_name: str, note: Callable[[str], None]
) -> None:
    """Raises :class:`InvalidParameterError` if ``model`` was calibrated on a passage of ``text``.

    Of a text that is not built in, a packed directory knows the checksum: the same text is refused,
    and ``note`` is told that another one cannot be compared.
    """
    used = None if model.manifest is None else model.manifest.calibration
    if used is None:
        return
    if used.sha256 == _sha256(text):
        raise InvalidParameterError(
            f"{text_name}: {model.path} was calibrated on this text; give another one"
        )
    built_in = calibration_text()
    if used.sha256 != _sha256(built_in.text):
        note(
            f"{model.path} was calibrated on {used.name}, of which only a checksum is here: "
            f"that {text_name} has no passage of it is taken on trust"
        )
        return
    passage = overlap(text, built_in.text)
    if passage is not None:
        raise InvalidParameterError(
            f"{text_name}: {model.path} was calibrated on {built_in.name}, which has a passage of "
            f"it ({passage!a}); give another text"
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
