"""What admission knows of the prompts that were let in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt that somebody wants an answer to.

    ``sequences``: its choices. ``max_tokens``: that each may become long; ``ignore_eos``: it does.
    ``user`` and ``priority`` are the engine's, the same for all prompts of a request.
    """

    key: int
    prompt_tokens: int
    sequences: int
    max_tokens: int
    ignore_eos: bool = False
    user: str = ""
    priority: int = 0


@dataclass(slots=True, eq=False)
class Entered:
    """A request that was let in, with all its prompts."""

    principal: str
    at: float
    user: str = ""
    priority: int = 0
    prompts: list[Prompt] = field(default_factory=list)
    waiting: int = 0  # answers that have not begun
    left: bool = False


@dataclass(slots=True)
class Choice:
    """An answer that has begun."""

    sampled: int = 0  # tokens
    noted: int = 0  # of them, that the lengths of answers know of


@dataclass(slots=True, eq=False)
class Prompt:
    """One prompt and how far its choices have come."""

    ask: Ask
    request: Entered
    read: int = 0  # tokens of it that are stored
    running: dict[int, Choice] = field(default_factory=dict)  # by number
    copies: int = 1  # prompts like it that it stands for, one after the other
    waiting: int = field(init=False)  # choices that have not begun

    def __post_init__(self) -> None:
        """All wait."""
        self.waiting = self.ask.sequences


def prompt_tokens(asks: Sequence[Ask]) -> int:
    """Tokens of all of them."""
    return sum(ask.prompt_tokens for ask in asks)
