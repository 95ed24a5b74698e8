"""A model's vocabulary as llguidance wants it: the bytes of each token, in a trie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import llguidance

_MARKER = b"\xff"  # begins llguidance's own spelling of control tokens; no UTF-8 text has it
_NEAR = 256  # characters


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """What matching needs to know of a tokenizer.

    ``vocab_size``: width of the model's logits, which may exceed the tokenizer's. ``token_bytes``:
    of an id, empty where it has none. ``control_ids``: tokens that are never text.
    ``eos_token_ids``: tokens that end an answer. ``encode``: ids of text that follows other text.
    """

    vocab_size: int
    token_bytes: Callable[[int], bytes]
    control_ids: Collection[int]
    eos_token_ids: Sequence[int]
    encode: Callable[[str], Sequence[int]]

    @property
    def ends(self) -> tuple[int, ...]:
        """Ends of an answer. A model that has none gets one beyond its logits."""
        return tuple(i for i in self.eos_token_ids if i < self.vocab_size) or (self.vocab_size,)

    def build(self, greedy: Callable[[str], Sequence[int]]) -> llguidance.LLTokenizer:
        """The trie, in about half a second for 152 k tokens.

        ``greedy``: the longest tokens of the trie first. It must not hold what is returned, which
        holds it where no garbage collector sees it.
        """
        import llguidance

        tokens = [self.token_bytes(i) for i in range(self.vocab_size)]
        tokens += [b"<end>"] * (max(self.ends) + 1 - self.vocab_size)
        special = {*self.control_ids, *self.ends}
        tokens = [
            b"" if data[:1] == _MARKER and i not in special else data
            for i, data in enumerate(tokens)
        ]
        reader = _Reader(tokens, special, self.ends, self.encode, greedy)
        return llguidance.LLTokenizer(reader, eos_token=list(self.ends))  # type: ignore[arg-type]


class _Reader:
    """What llguidance asks of a tokenizer (its ``TokenizerWrapper``)."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self,
        tokens: list[bytes],
        special: Collection[int],
        ends: Sequence[int],
        encode: Callable[[str], Sequence[int]],
        greedy: Callable[[str], Sequence[int]],
    ) -> None:
        self.tokens = tokens
        self.special_token_ids = [i for i in special if i < len(tokens) and tokens[i]]
        self.eos_token_id = ends[0]
        self._encode = encode
        self._greedy = greedy

    def __call__(self, text: str) -> list[int]:
        """Ids whose bytes are ``text``: the model's own way to write it, if that gives them.

        Text that a grammar leaves no choice about is asked for whole, but only its first token is
        used before it is asked for again; so what lies far behind may be cut as it comes.
        """
        near, far = text[:_NEAR], text[_NEAR:]
        ids = list(self._encode(near))
        if b"".join([self.tokens[i] for i in ids]) != near.encode():
            ids = list(self._greedy(near))
        return [*ids, *self._greedy(far)] if far else ids
