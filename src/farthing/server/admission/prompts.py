"""What admission knows of the prompts that were let in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt that somebody wants an answer to.

    ``sequences``: its choices. ``max_tokens``: that each may become long; ``ignore_eos``: it does.
    """

    key: int
    prompt_tokens: int
    sequences: int
    max_tokens: int
    ignore_eos: bool = False


@dataclass(slots=True, eq=False)
class Entered:
    """A request that was let in, with all its prompts."""

    principal: str
    at: float
    prompts: list[Prompt] = field(default_factory=list)
    waiting: int = 0  # prompts that have not begun
    left: bool = False


@dataclass(slots=True, eq=False)
class Prompt:
    """One prompt and how far it has come."""

    ask: Ask
    request: Entered
    begun: bool = False
    read: int = 0  # tokens of it that are stored
    sampled: int = 0  # tokens of all its choices
    unfinished: int = 0  # choices that have not ended
    noted: int = 0  # tokens of a choice that the lengths of answers know of

    @property
    def sampled_each(self) -> int:
        """Tokens that a choice has, on average."""
        return self.sampled // self.ask.sequences


def prompt_tokens(asks: Sequence[Ask]) -> int:
    """Tokens of all of them."""
    return sum(ask.prompt_tokens for ask in asks)
