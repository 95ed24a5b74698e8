"""Text of token ids that arrive one by one."""

from __future__ import annotations

from farthing.tokenization.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Decodes a growing sequence of ids; what it emits, joined, is the decode of them all.

    Bytes that may still become a character are held back until they do, or until they cannot; so
    U+FFFD appears exactly where the decode of the whole has it. ``continuation`` as in
    :meth:`Tokenizer.decode`.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool = True, *, continuation: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.control_ids if skip_special else frozenset()
        self._held = b""
        self._strip_next = tokenizer.strips_first_space and not continuation

    def push(self, token_id: int) -> str:
        """Take one id; return the text that is now certain, perhaps none."""
        if token_id in self._skipped:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._strip_next and data:
            data = data.removeprefix(b" ")
            self._strip_next = False
        data = self._held + data
        certain = len(data) - unfinished(data)
        self._held = data[certain:]
        return data[:certain].decode("utf-8", "replace")

    def flush(self) -> str:
        """End the sequence: return what was held back (U+FFFD if an incomplete character)."""
        held, self._held = self._held, b""
        return held.decode("utf-8", "replace")


def unfinished(data: bytes) -> int:
    """How many last bytes of ``data`` begin a UTF-8 character that more bytes may complete.

    The standard library's incremental decoder also holds ED A0, which nothing can complete.
    """
    for length in (1, 2, 3):
        if length > len(data):
            return 0
        first = data[-length]
        if first < 0x80:
            return 0
        if first >= 0xC0:  # a leading byte; those before were continuation bytes
            return length if _may_be_completed(data[-length:]) else 0
    return 0


def _may_be_completed(beginning: bytes) -> bool:
    """Unicode standard, table 3-7, for beginnings without their last byte."""
    first = beginning[0]
    size = 2 if 0xC2 <= first < 0xE0 else 3 if first < 0xF0 else 4 if first < 0xF5 else 0
    if first < 0xC2 or len(beginning) >= size:
        return False
    if len(beginning) == 1:
        return True
    low = {0xE0: 0xA0, 0xF0: 0x90}.get(first, 0x80)
    high = {0xED: 0x9F, 0xF4: 0x8F}.get(first, 0xBF)
    return low <= beginning[1] <= high
