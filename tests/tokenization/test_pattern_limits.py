"""Patterns of a tokenizer file: published ones pass, those that could take for ever do not."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from farthing.tokenization import pretokenization
from farthing.tokenization.pattern_limits import MAX_LENGTH, PatternError, check_pattern

pytestmark = pytest.mark.usefixtures("others_garbage")

PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
    r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "han": r"[一-龥぀-ゟ゠-ヿ]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}",
    "three digits from the right": r"\d{1,3}(?=(?:\d{3})*\b)",
    "digits of tekken": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    "spaces": r" {2,}",
    "falcon": r"[0-9][0-9][0-9]",
    "possessive": r"(?<!\s)\s++$",
    "code points": r"[\x{4e00}-\x{9fff}]+|\x41|é\b",
}
ENDLESS = {
    "nested": r"(a+)+b",
    "nested without capture": r"(?:a*)*b",
    "alternatives that overlap": r"(a|a)*b",
    "alternatives of several lengths": r"(?:a|aa)+b",
    "lengths that vary": r"(?:a{1,3})*b",
    "optional in a loop": r"(?:ab?)*c",
    "optional many times": r"(a?){30}a{30}",
    "bounded of bounded": r"((a{1,50}){1,50}){1,50}b",
    "four in a row": r"a*a*a*a*b",
    "four in groups": r"(.*)(.*)(.*)(.*)x",
    "four behind a look ahead": r"(?=a*a*)a*a*b",
    "loop in a look ahead": r"(?:(?=a*)b)*",
    "atomic loop": r"(?>a+)+b",
    "repeated interval": r"a{1,9}{1,9}{1,9}{1,9}{1,9}{1,9}b",
}
NOT_JUDGED = {
    "back reference": r"(a)\1",
    "named reference": r"(?<n>a)\k<n>",
    "subroutine": r"\g<1>",
    "recursion": r"(?R)",
    "absent": r"(?~a)",
    "condition": r"(?(1)a)",
    "code": r"(?{x})",
    "verb": r"(*FAIL)",
    "comment": r"(?#a)b",
    "no end of group": r"(a",
    "no group": r"a)",
    "no end of class": r"[a",
    "class of one bracket": r"[]",
    "backslash": "\\",
    "nothing to repeat": "*",
    "count": "a{99999}",
    "reversed": "a{3,2}",
    "deep groups": "(" * 40 + "a" + ")" * 40,
    "deep classes": "[" * 5000,
    "long": "a" * (MAX_LENGTH + 1),
    "many alternatives": "a|" * (MAX_LENGTH // 2 + 1),
    "unknown escape": r"\y",
    "property without its end": r"\p{L",
}


def install(pattern: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, " ": 2}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    return tokenizer


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_patterns_pass(name: str) -> None:
    check_pattern(PUBLISHED[name])
    install(PUBLISHED[name])


def test_patterns_of_gguf_files_pass() -> None:
    texts = [text for text in _texts(pretokenization.PRE_TOKENIZATIONS) if "\\" in text]
    assert texts
    for text in texts:
        check_pattern(text)


def _texts(value: Any) -> list[str]:
    """Every string in a table of data classes, lists and dictionaries."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    fields = getattr(value, "__dataclass_fields__", {})
    return [text for name in fields for text in _texts(getattr(value, name))]


@pytest.mark.parametrize("name", ENDLESS)
def test_patterns_that_could_take_for_ever_are_refused(name: str) -> None:
    with pytest.raises(PatternError):
        check_pattern(ENDLESS[name])


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_cannot_be_judged_is_refused(name: str) -> None:
    start = time.process_time()
    with pytest.raises(PatternError):
        check_pattern(NOT_JUDGED[name])
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("pattern", "empty"),
    [("a", False), ("a*", True), ("a+", False), ("a{0,3}", True), ("a{2,}", False), ("", True),
     ("a|", True), ("a|b", False), ("(?=a)", True), ("(?=a)a", False), (r"\b", True), ("^$", True),
     (r"\ba?", True), (r"\d", False), ("(a?)(b?)", True), ("(a?)(b)", False), ("[ab]*+", True)],
)  # fmt: skip
def test_patterns_that_may_match_nothing(pattern: str, empty: bool) -> None:
    check_pattern(pattern)
    if empty:
        with pytest.raises(PatternError, match="may match nothing"):
            check_pattern(pattern, may_be_empty=False)
    else:
        check_pattern(pattern, may_be_empty=False)


def test_what_passes_is_fast_on_texts_that_hurt() -> None:
    """Random patterns: whatever is let through matches 2,000 awkward characters within seconds."""
    rng = random.Random(11)
    parts = ["a", "b", "[ab]", r"\w", ".", r"\s", "[^b]", "(?:a|b)", "(?:ab)", "(a)", "(?=a)"]
    counts = ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "+?", "*+"]
    passed = 0
    for _ in range(400):
        pieces = [rng.choice(parts) + rng.choice(counts) for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.4:
            pieces[0] = f"(?:{pieces[0]}){rng.choice(counts)}"
        if rng.random() < 0.3:
            pieces.insert(rng.randrange(len(pieces)), "|")
        pattern = "".join(pieces)
        try:
            check_pattern(pattern)
        except PatternError:
            continue
        if re.search(r"\(\?=a\)\)?[?*+{]", pattern):  # some cannot be repeated
            continue
        passed += 1
        tokenizer = install(pattern)
        for text in ("a" * 300, "a" * 300 + "!", "ab" * 150, " " * 300, "a" * 150 + " " * 150):
            start = time.process_time()
            tokenizer.encode(text)
            assert time.process_time() - start < 1, (pattern, text[:20])
    assert passed > 100
