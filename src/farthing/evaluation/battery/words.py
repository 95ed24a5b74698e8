"""A text as the words that are compared, however they were written."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_UNITS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: n for n, word in enumerate(_UNITS.split())} | {
    word: 20 + 10 * n for n, word in enumerate(_TENS.split())
}
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_SPELLINGS = {"saint": "st", "sulphur": "sulfur", "aluminium": "aluminum", "caesium": "cesium"}

_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l"}
    | {"Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i"}
    | {"−": "-", "&": " and ", "%": " percent "}
    | dict.fromkeys("'’‘`ʼʻ", None)
)
_IS = re.compile(r"\b(it|he|she|that|they|there)['’](s|re)\b", re.IGNORECASE)
_WORD = re.compile(r"(?P<number>(?<!\w)-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w))|[^\W_]+")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is compared, what stands before it, and whether it begins like a name."""

    text: str
    before: str
    named: bool


def words(text: str) -> list[Word]:
    """The words of ``text``: no case, accents or apostrophes; numbers as digits.

    ``N'Djamena`` is ``ndjamena``, ``Twenty-four`` and ``24.0`` are ``24``, ``U. S. A.`` is ``usa``,
    ``Saint`` is ``st``.
    """
    text = _IS.sub(lambda found: f"{found[1]} {'is' if found[2] in 'sS' else 'are'}", text)
    text = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    text = "".join([c for c in text if not unicodedata.combining(c)])
    found, end = [], 0
    for match in _WORD.finditer(text):
        before = text[end : match.start()]
        number = match["number"]
        found.append(_word(match[0], before) if number is None else _in_digits(number, before))
        end = match.end()
    return _numbers_joined(_initials_joined(found))


def _in_digits(number: str, before: str) -> Word:
    """Without commas and zeros that mean nothing; of any length, in any script's digits."""
    plain = "".join(c if c in "-." else str(unicodedata.decimal(c)) for c in number if c != ",")
    whole, _, fraction = plain.removeprefix("-").partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    value = f"{whole}.{fraction}" if fraction else whole
    return Word(f"-{value}" if plain[0] == "-" and value != "0" else value, before, True)


def _word(spelled: str, before: str) -> Word:
    folded = spelled.casefold()
    return Word(_SPELLINGS.get(folded, folded), before, spelled[0].isupper())


def _initials_joined(found: list[Word]) -> list[Word]:
    """``J. R. R.`` and ``D.C.`` as one word."""
    joined: list[Word] = []
    run = False  # whether the last word is one letter, or several that were joined
    for word in found:
        initial = len(word.text) == 1 and word.named and not word.text.isdecimal()
        if initial and run and word.before in {".", " ", ". "}:
            last = joined[-1]
            joined[-1] = Word(last.text + word.text, last.before, True)
        else:
            joined.append(word)
        run = initial
    return joined


def _numbers_joined(found: list[Word]) -> list[Word]:
    """Number words as digits: ``one hundred and five`` is ``105``."""
    joined: list[Word] = []
    at = 0
    while at < len(found):
        value, end = _number(found, at)
        if end > at:
            joined.append(Word(str(value), found[at].before, True))
            at = end
        else:
            joined.append(found[at])
            at += 1
    return joined


def _number(found: list[Word], start: int) -> tuple[int, int]:
    """The number that is spelled from ``start`` on, and where it ends; ``start`` if none is."""
    whole = part = 0
    at, last = start, 0  # last: how large the word before was; nothing as small may follow
    while at < len(found):
        text = found[at].text
        if at > start and found[at].before not in {" ", "-"}:
            break
        if text in _SMALL and (at == start or last >= 100 or (last >= 20 and _SMALL[text] < 10)):
            part += _SMALL[text]
            last = _SMALL[text]
        elif text in _LARGE and at > start and last < _LARGE[text]:
            if text == "hundred":
                part *= 100
            else:
                whole, part = whole + part * _LARGE[text], 0
            last = _LARGE[text]
        elif not (text == "and" and last >= 100 and _is_small(found, at + 1)):
            break
        at += 1
    return whole + part, at


def _is_small(found: list[Word], at: int) -> bool:
    return at < len(found) and found[at].text in _SMALL and found[at].before == " "
