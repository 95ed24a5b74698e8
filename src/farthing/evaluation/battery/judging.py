"""Whether an answer is right."""

from __future__ import annotations

import re

from farthing.evaluation.battery.items import Item
from farthing.evaluation.battery.words import Word, words

_ARTICLES = frozenset({"a", "an", "the"})
_COPULAS = frozenset({"is", "are", "was", "were"})
_CLAUSES = _COPULAS | {"has", "had", "which", "who", "because"}
_EXPLANATIONS = _ARTICLES | {"also", "which", "who", "where", "as", "because", "known", "not"}
_FILLERS = _ARTICLES | {"it", "they", "he", "she", "that", "there", "answer", "in", "of", "on"}
_ENDS = re.compile(r"[.!?;:()\n]| [-–—] |[–—]")


def is_right(item: Item, text: str) -> bool:
    """Whether the first line of ``text`` gives an answer of ``item``, and no other.

    Compared word by word (:func:`~farthing.evaluation.battery.words.words`), an article in front
    left out. The line may begin with the answer, or name it behind what the question asks for
    (*The capital of France is Paris*). What follows may be another sentence, an explanation
    (*Jupiter, the largest planet*) or words of the question (*Pacific Ocean*, *7 days*), but not
    what makes it another answer: *Guinea-Bissau* is not Guinea, nor *carbon dioxide* carbon, and
    *Paris or London*, *Paris, London* and *Paris, Texas* are not Paris. Words are parted by blanks
    or signs; in writing that parts none, the line must be the answer alone. The rule is English.
    """
    given = words(text.split("\n", 1)[0])
    asked = {_singular(word.text) for word in words(item.question)}
    accepted = [_without_article([word.text for word in words(each)]) for each in item.answers]
    starts = _starts(given, asked)
    return any(
        [word.text for word in given[start : start + len(answer)]] == answer
        and _nothing_else(given[start + len(answer) :], _repeatable(answer, asked))
        for answer in accepted
        for start in starts
    )


def _without_article(answer: list[str]) -> list[str]:
    return answer[1:] if len(answer) > 1 and answer[0] in _ARTICLES else answer


def _repeatable(answer: list[str], asked: set[str]) -> set[str]:
    """The words of the question that may follow: none where they would be the question again."""
    return set() if {_singular(word) for word in answer} <= asked else asked


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def _starts(given: list[Word], asked: set[str]) -> list[int]:
    """Where in the line the answer may begin."""
    starts = [0]
    for at, word in enumerate(given):
        if word.text in _COPULAS:
            starts.append(at + 1)
            break
        if _singular(word.text) not in asked | _FILLERS or word.text == "not":
            break
    return starts + [at + 1 for at in starts if at < len(given) and given[at].text in _ARTICLES]


def _nothing_else(rest: list[Word], asked: set[str]) -> bool:
    """Whether what follows an answer leaves it that answer."""
    if not rest or _ENDS.search(rest[0].before):
        return True
    clause = [rest[0]]
    for word in rest[1:]:
        if _ENDS.search(word.before):
            break
        clause.append(word)
    unasked = [word for word in clause if _singular(word.text) not in asked | _FILLERS]
    if not unasked:
        return True
    if "," in rest[0].before:
        return rest[0].text in _EXPLANATIONS and not rest[0].named
    return rest[0].text in _CLAUSES
