"""Whether answers under load are, character for character, those of the same requests alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from farthing.bench.serving.answer import Answer, read_answer
from farthing.bench.serving.http_client import HttpClient
from farthing.bench.serving.load import Outcome, play


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer that is another one alone. ``position``: of the first character that differs."""

    request: int
    position: int
    alone: str  # its text, or the error of asking again


@dataclass(frozen=True, slots=True)
class TextCheck:
    """What asking again alone came to."""

    checked: int
    differences: list[Difference]

    def as_json(self) -> dict[str, Any]:
        """For the result: which requests differ, and where."""
        return {
            "checked": self.checked,
            "equal": self.checked - len(self.differences),
            "different": [
                {"request": each.request, "position": each.position} for each in self.differences
            ],
        }


async def check_texts(
    client: HttpClient,
    requests: Sequence[bytes],
    answers: Sequence[Answer],
    *,
    chat: bool,
    timeout: float,
    progress: Callable[[Outcome], None] = lambda outcome: None,
    stop: asyncio.Event | None = None,
) -> TextCheck:
    """Asks every request that was answered once more, one at a time.

    Nobody else may use the server meanwhile. Stopped, it has checked fewer.
    """
    whole = [index for index, answer in enumerate(answers) if answer.success]
    played = await play(
        client,
        [requests[index] for index in whole],
        [0.0] * len(whole),
        timeout=timeout,
        max_concurrency=1,
        progress=progress,
        stop=stop,
    )
    differences, checked = [], 0
    for index, outcome in zip(whole, played.outcomes, strict=True):
        if outcome.exchange is None:
            continue
        checked += 1
        alone = read_answer(outcome.exchange, chat)
        if alone.error or alone.text != answers[index].text:
            position = _first_difference(alone.text, answers[index].text)
            differences.append(Difference(index, position, alone.error or alone.text))
    return TextCheck(checked, differences)


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
