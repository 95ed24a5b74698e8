"""Follows one request through its grammar: which tokens may come next, and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farthing.sampling.grammar.translation import one_line

if TYPE_CHECKING:
    import llguidance

_ENOUGH = 4  # masks that are worth other threads; a usual one takes 50 microseconds
_COMPLETE = ("NotStopped", "NoExtension", "EndOfSentence")


class GrammarMatcher:
    """State of one request, a function of its grammar and the tokens accepted so far.

    ``ends``: tokens that end the answer, allowed where the grammar may end. ``prefer_more``: they
    are allowed only where nothing else is (``ignore_eos``).
    """

    __slots__ = (
        "_compiler",
        "_ends",
        "_matcher",
        "_prefer_more",
        "_tokens",
        "_vocab_size",
        "error",
        "finished",
    )

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        *,
        vocab_size: int,
        ends: Sequence[int],
        prefer_more: bool = False,
        compiler: object = None,
    ) -> None:
        self._compiler = compiler  # kept: the matcher's vocabulary refers to it only weakly
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._tokens = max(vocab_size, max(ends) + 1)
        self._ends = np.array(sorted(ends))
        self._prefer_more = prefer_more
        self.error: str | None = None
        self.finished = False
        """True once the answer is whole and nothing may follow it."""
        self._notice()

    def accept(self, token: int) -> None:
        """Takes the token that was drawn. Afterwards ``error`` or ``finished`` may be set."""
        if not self._matcher.consume_token(token):
            self._fail(f"token {token} does not continue the answer")
        elif token in self._ends:
            self.finished = True
        else:
            self._notice()

    def _notice(self) -> None:
        """An answer that cannot go on is finished, if the model has no token to say so."""
        if self._matcher.is_stopped():
            self._check()
            self.finished = int(self._ends[0]) >= self._vocab_size and self.error is None

    def _check(self) -> None:
        if self._matcher.is_error() or self._matcher.stop_reason() not in _COMPLETE:
            self._fail("the grammar is too complex to go on")

    def _fail(self, reason: str) -> None:
        said = one_line(self._matcher.get_error()) if self._matcher.is_error() else ""
        self.error = said or reason

    def _finish_mask(self, words: NDArray[np.uint32]) -> None:
        """Looks at the mask that was just computed into ``words``."""
        self._check()
        if self._tokens > self._vocab_size:  # the end that no logit stands for
            words[self._vocab_size >> 5] &= (1 << (self._vocab_size & 31)) - 1
        if not self._prefer_more or self.error is not None:
            return
        kept = words.copy()
        np.bitwise_and.at(words, self._ends >> 5, ~(np.uint32(1) << (self._ends & 31).astype("u4")))
        if not words.any():
            words[:] = kept


class MaskFiller:
    """Computes the masks of a step, on several threads where there are several to compute."""

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._executor: llguidance.LLExecutor | None = None

    def fill(self, matchers: Sequence[GrammarMatcher]) -> list[NDArray[np.uint32]]:
        """Packed masks, one (ceil(vocab / 32),) for each matcher: bit i % 32 of word i // 32.

        A matcher whose ``error`` is set afterwards has no mask to go by.
        """
        if not matchers:
            return []
        words = -(-matchers[0]._tokens // 32)
        masks = np.zeros((len(matchers), words), np.uint32)
        if len(matchers) < _ENOUGH or self._num_threads == 1:
            for matcher, mask in zip(matchers, masks, strict=True):
                matcher._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        else:
            if self._executor is None:
                import llguidance

                self._executor = llguidance.LLExecutor(self._num_threads)
            self._executor.unsafe_compute_mask_ptr(
                [(matcher._matcher, i) for i, matcher in enumerate(matchers)],
                masks.ctypes.data,
                words * 4,
                len(matchers),
            )
        for matcher, mask in zip(matchers, masks, strict=True):
            matcher._finish_mask(mask)
        return [mask[: -(-m._vocab_size // 32)] for m, mask in zip(matchers, masks, strict=True)]
