"""What one rendering may use, and the account it is charged to.

Every operation of a template that can take long or make something big passes one of the charging
points of :mod:`.environment` and :mod:`.rewrite`; see docs/decisions/chat-template-limits.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from farthing.errors import ChatTemplateError, ChatTemplateLimitError

MAX_SOURCE_BYTES = 256 * 1024
MAX_SOURCE_TOKENS = 16_384  # lexical; compiling that many takes well under a second
MAX_CPU_SECONDS = 0.75  # of the rendering thread: other threads' load does not shorten it
MAX_CHARACTERS = 8 * 1024 * 1024  # of the result and of every string on the way to it
MAX_ALLOCATED = 8 * MAX_CHARACTERS  # of all strings made during one rendering
MAX_ITEMS = 100_000  # of one list or dict, as of one range()
MAX_DEPTH = 100  # of nested lists and dicts
MAX_INTEGER_BITS = 4096
MAX_WIDTH = 10_000  # of padding and indentation

_STEPS_BETWEEN_CLOCK_READINGS = 2_000


class Budget:
    """CPU time and characters left to one rendering."""

    def __init__(self) -> None:
        self._deadline = time.thread_time() + MAX_CPU_SECONDS
        self._steps = _STEPS_BETWEEN_CLOCK_READINGS
        self._characters = MAX_ALLOCATED

    def charge(self, steps: int) -> None:
        """Account for work; a step is about 0.1 microseconds."""
        self._steps -= steps
        if self._steps < 0:
            self._steps = _STEPS_BETWEEN_CLOCK_READINGS
            if time.thread_time() > self._deadline:
                raise ChatTemplateLimitError(
                    f"the chat template ran for more than {MAX_CPU_SECONDS} s of processor time"
                )

    def allocate(self, characters: int) -> None:
        """Account for a new string before it is made."""
        if characters > MAX_CHARACTERS:
            raise too_much(f"a text of {characters} characters", MAX_CHARACTERS)
        self._characters -= characters
        if self._characters < 0:
            raise too_much("all its texts together", MAX_ALLOCATED)
        self.charge(1 + (characters >> 9))


_local = threading.local()


@contextmanager
def rendering() -> Iterator[Budget]:
    """Give this thread a fresh budget for the time of the block."""
    outer = getattr(_local, "budget", None)
    _local.budget = Budget()
    try:
        yield _local.budget
    finally:
        _local.budget = outer


def budget() -> Budget:
    """The budget of the rendering that this thread is in."""
    current: Budget = _local.budget
    return current


def too_big(thing: str, limit: int) -> ChatTemplateError:
    """The error for a value over a limit."""
    return ChatTemplateError(_over(thing, limit))


def too_much(thing: str, limit: int) -> ChatTemplateLimitError:
    """The error for more text than any messages that may be sent could explain."""
    return ChatTemplateLimitError(_over(thing, limit))


def _over(thing: str, limit: int) -> str:
    return f"the chat template makes {thing}; the limit is {limit}"
