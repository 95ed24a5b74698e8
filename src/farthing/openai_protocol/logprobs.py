"""Log probabilities in the shapes of the two APIs."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from farthing.engine.outputs import Logprob

Entries = Sequence[Mapping[int, Logprob] | None]
"""For each token the likeliest and, first, the token itself; None where nothing precedes it."""


class TokenTexts(Protocol):
    """The part of a tokenizer that responses need."""

    def decode(self, ids: Sequence[int], *, skip_special: bool = ...) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...


def chat_logprobs(
    entries: Entries, top: int, texts: TokenTexts, *, as_ids: bool = False
) -> dict[str, Any]:
    """``logprobs`` of a chat choice; ``top`` alternatives a token. Bytes are a token's very own."""

    def written(token: int, entry: Logprob) -> dict[str, Any]:
        return {
            "token": _name(token, entry, as_ids),
            "logprob": entry.logprob,
            "bytes": list(texts.token_bytes(token)),
        }

    content = []
    for by_token in entries:
        if by_token is None:
            continue
        token, entry = next(iter(by_token.items()))
        likeliest = [written(*each) for each in _likeliest(by_token, top)]
        content.append({**written(token, entry), "top_logprobs": likeliest})
    return {"content": content}


def completion_logprobs(
    token_ids: Sequence[int],
    entries: Entries,
    top: int,
    texts: TokenTexts,
    *,
    as_ids: bool = False,
    offsets: TextOffsets | None = None,
) -> dict[str, Any]:
    """``logprobs`` of a completion choice; the token itself is always among the alternatives.

    ``text_offset`` is the character of the tokens' text in which a token begins. ``offsets``: of
    the tokens before these, which are parts of a choice.
    """
    offsets = offsets or TextOffsets()
    tokens: list[str] = []
    values: list[float | None] = []
    alternatives: list[dict[str, float] | None] = []
    begins = [offsets.next(texts.token_bytes(token)) for token in token_ids]
    for token, by_token in zip(token_ids, entries, strict=True):
        if by_token is None:
            name = texts.decode([token], skip_special=False)
            tokens.append(f"token_id:{token}" if as_ids else name)
            values.append(None)
            alternatives.append(None)
            continue
        entry = by_token[token]
        name = _name(token, entry, as_ids)
        tokens.append(name)
        values.append(entry.logprob)
        found = {name: entry.logprob}
        for other, likely in _likeliest(by_token, top):  # of equal names the likelier counts
            if other != token:
                found.setdefault(_name(other, likely, as_ids), likely.logprob)
        alternatives.append(found)
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": alternatives,
        "text_offset": begins,
    }


def prompt_logprobs(entries: Entries) -> list[dict[str, Any] | None]:
    """``prompt_logprobs`` as vLLM writes them: by token id."""
    return [
        None
        if by_token is None
        else {
            str(token): {
                "logprob": entry.logprob,
                "rank": entry.rank,
                "decoded_token": entry.decoded_token,
            }
            for token, entry in by_token.items()
        }
        for by_token in entries
    ]


class TextOffsets:
    """The character in which each piece of a text begins, as its pieces come."""

    def __init__(self) -> None:
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def next(self, piece: bytes) -> int:
        """Where ``piece`` begins, which comes next."""
        open_, _ = self._characters.getstate()
        # What is broken off is a character of its own.
        begins = self._offset + bool(open_ and piece and not _goes_on(open_, piece))
        self._offset += len(self._characters.decode(piece))
        return begins


def _goes_on(character: bytes, piece: bytes) -> bool:
    """Whether ``piece`` begins with the next byte of an unfinished ``character``."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(character + piece[:1])
    except UnicodeDecodeError:
        return False
    return True


def _likeliest(by_token: Mapping[int, Logprob], top: int) -> list[tuple[int, Logprob]]:
    found = [(token, entry) for token, entry in by_token.items() if entry.rank <= top]
    return sorted(found, key=lambda each: each[1].rank)


def _name(token: int, entry: Logprob, as_ids: bool) -> str:
    return f"token_id:{token}" if as_ids else entry.decoded_token
