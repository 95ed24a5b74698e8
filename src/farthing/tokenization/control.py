"""Which vocabulary strings are control tokens, and finding them in text that may use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Some vocabularies list their turn markers as ordinary added tokens. The word character inside
# keeps out strings that merging could form: pre-tokenizers split words from punctuation.
_LOOKS_LIKE_CONTROL = re.compile(r"<[|｜][^<>\s]*\w[^<>\s]*[|｜]>")

_ADDED_LOOKS_LIKE_CONTROL = re.compile(r"<[|｜][^<>\s]+>|<[^<>\s]+[|｜]>")

_END_OF_ANSWER = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|eot|>",
    "<|return|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",  # Gemma 4 hands over to the tool
    "<｜end▁of▁sentence｜>",
    "</s>",
)

_NOT_CONTROL = 2**32 - 1

# Unicode's property White_Space, as the library has it; str.isspace() knows four more.
_WHITE_SPACE = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)


def looks_like_control(token: str, *, added: bool = False) -> bool:
    """Whether ``token`` is spelled as turn markers are: ``<|word|>``, either kind of bar.

    ``added``: no merging forms the token. Then one bar is enough (Gemma 4: ``<|turn>``,
    ``<turn|>``), and any character within (``<|"|>``).
    """
    if added:
        return token[:1] == "<" and bool(_ADDED_LOOKS_LIKE_CONTROL.fullmatch(token))
    return token.startswith(("<|", "<｜")) and bool(_LOOKS_LIKE_CONTROL.fullmatch(token))


def ends_of_answer(control: Mapping[str, ControlToken]) -> list[int]:
    """Ids of the control tokens whose spelling is known to end an answer.

    ``<|end|>`` only closes a part of the answer in vocabularies that also have ``<|return|>``.
    """
    found = [spelling for spelling in _END_OF_ANSWER if spelling in control]
    if "<|return|>" in found and "<|end|>" in found:
        found.remove("<|end|>")
    return [control[spelling].id for spelling in found]


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that text may only become on purpose; the flags take neighbouring white space."""

    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class ControlFinder:
    """Finds control tokens, leftmost and longest first."""

    def __init__(self, control: Mapping[str, ControlToken]) -> None:
        self._control = control
        self._rstrip_ids = {token.id for token in control.values() if token.rstrip}

    @cached_property
    def _finder(self) -> Tokenizer:
        # A vocabulary of control tokens alone: the library's automaton does the searching.
        from tokenizers import AddedToken, Tokenizer, models

        vocabulary = {spelling: token.id for spelling, token in self._control.items()}
        unknown = "\0"
        while unknown in vocabulary:
            unknown += "\0"
        vocabulary[unknown] = _NOT_CONTROL
        finder = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=unknown))
        finder.add_special_tokens(
            [
                AddedToken(
                    spelling,
                    special=True,
                    normalized=False,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    single_word=token.single_word,
                )
                for spelling, token in self._control.items()
            ]
        )
        return finder

    def find(self, text: str, allowed: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """``(start, stop, id)`` of every control token that lies inside one ``allowed`` range.

        Ranges are ascending, disjoint character ranges of ``text``. White space that a token
        takes with it may lie beyond its range.
        """
        found: list[tuple[int, int, int]] = []
        if not self._control:
            return found
        for start, stop in allowed:
            encoding = self._finder.encode(text[start:stop], add_special_tokens=False)
            for token_id, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
                if token_id != _NOT_CONTROL:
                    found.append((start + first, start + last, token_id))
        if self._rstrip_ids:
            found = [self._with_space_after(text, *hit) for hit in found]
        return found

    def _with_space_after(
        self, text: str, start: int, stop: int, token_id: int
    ) -> tuple[int, int, int]:
        if token_id in self._rstrip_ids:
            while stop < len(text) and text[stop] in _WHITE_SPACE:
                stop += 1
        return start, stop, token_id
