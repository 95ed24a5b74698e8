"""By which names a request may ask for the model that is served."""

from __future__ import annotations

from collections.abc import Iterable

from farthing.openai_protocol.errors import RequestError, shown


class ModelNames:
    """Names of one model, the one it answers with first. Names are only compared, never opened."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))

    def checked(self, asked: str | None) -> str:
        """The name to answer with. Raises :class:`RequestError` (404) for another model's."""
        if asked is None:
            return self.names[0]
        if asked in self.names:
            return asked
        raise RequestError(
            f"the model {shown(asked)} is not served here; it is {self.names[0]!r}",
            status=404,
            type="not_found_error",
            param="model",
            code="model_not_found",
        )
