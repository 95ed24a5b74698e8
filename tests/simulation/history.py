"""What a sequence must be: a model whose next token is a hash of all before it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

VOCAB_SIZE = 64
EOS_TOKEN_IDS = (3, 5)
FIRST_WORD = 8
"""Token ids from here on are words of prompts and outputs."""

_GENERATED_WORDS = 4


def begin(salt: bytes) -> int:
    """The history before the first token; tenants of other salts have another."""
    return hash((0xFA47, int.from_bytes(salt, "little")))


def extend(history: int, tokens: Sequence[int]) -> list[int]:
    """The histories after each of ``tokens``."""
    chain = []
    for token in tokens:
        history = hash((history, token))
        chain.append(history)
    return chain


def next_token(history: int, seed: int, choice: int) -> int:
    """The token drawn after ``history``: an end of sequence once in 32."""
    draw = hash((history, seed, choice))
    if draw & 31 == 0:
        return EOS_TOKEN_IDS[draw >> 5 & 1]
    return FIRST_WORD + (draw >> 8) % _GENERATED_WORDS


class Solo:
    """The run that a request would have alone: its tokens, its end, every history on the way."""

    __slots__ = ("chain", "reason", "tokens")

    def __init__(
        self,
        prompt: Sequence[int],
        salt: bytes,
        seed: int,
        choice: int,
        stop_token_ids: Collection[int],
        max_tokens: int,
    ) -> None:
        self.chain = extend(begin(salt), prompt)
        self.tokens: list[int] = []
        self.reason = "length"
        history = self.chain[-1]
        while len(self.tokens) < max_tokens:
            token = next_token(history, seed, choice)
            self.tokens.append(token)
            history = hash((history, token))
            self.chain.append(history)
            if token in stop_token_ids:
                self.reason = "stop"
                break
