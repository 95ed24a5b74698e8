"""A vocabulary whose tokens are single letters; the last but one is a space, the last a line."""

from __future__ import annotations


class WordVocabulary:
    """Token i is letter i of the alphabet, after it numbers in angle brackets."""

    def __init__(self, size: int) -> None:
        self.vocab_size = size

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == self.vocab_size - 1:
            return b"\n"
        if token_id == self.vocab_size - 2:
            return b" "
        return chr(97 + token_id).encode() if token_id < 26 else f"<{token_id}>".encode()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        special = {"\n": self.vocab_size - 1, " ": self.vocab_size - 2}
        return [special.get(c, ord(c) - 97) for c in text]
