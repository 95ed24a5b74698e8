"""How many tokens an answer may have, in the names that clients have for it."""

from __future__ import annotations

from farthing.openai_protocol.errors import RequestError

OTHERS_NAMES = ("n_predict", "max_new_tokens")
"""Names of ``max_tokens`` in llama-server, and in TGI and SGLang."""


def answer_limit(
    request: object, names: tuple[str, ...], *, default: int | None, least: int, right: str
) -> int | None:
    """The limit that ``request`` sets; None is all the context, as is -1 of ``n_predict``.

    The first of ``names`` that has one counts; other servers' names must agree with it. ``right``
    tells what may be given beside ``least`` and more. Raises :class:`RequestError`.
    """
    asked = {name: getattr(request, name) for name in (*names, *OTHERS_NAMES)}
    given = {name: limit for name, limit in asked.items() if limit is not None}
    if not given:
        return default
    first, limit = next(iter(given.items()))
    for name in OTHERS_NAMES:
        if given.get(name, limit) != limit:
            raise RequestError(
                f"{name}={given[name]}: {first}={limit} says something else; give one of them",
                param=name,
            )
    if first == "n_predict":
        right = ", or -1 for all the context"
        if limit == -1:
            return None
    if limit < least:
        raise RequestError(f"{first}={limit} must be at least {least}{right}", param=first)
    return int(limit)
