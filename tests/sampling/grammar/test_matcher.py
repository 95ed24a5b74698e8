"""Masks against what they should be, worked out by hand, along random answers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import numpy as np
import pytest

from farthing.sampling.grammar.compiler import GrammarCompiler
from farthing.sampling.grammar.matcher import GrammarMatcher, MaskFiller
from farthing.sampling.grammar.params import StructuredOutputsParams
from farthing.sampling.grammar.vocabulary import GrammarVocabulary

CHOICES = ["yes", "yesterday", "no", "né", "nè", "水", "🌾🍞", "🌾", "<end>", "aaaa", "  no  "]
WORDS = [
    *(bytes([byte]) for byte in range(256)),
    b"yes",
    b"ye",
    b"no",
    b"n\xc3",
    b"\xa8",
    "🌾".encode()[:3],
    "🌾".encode()[2:] + "🍞".encode()[:1],
    b"aa",
    b"aaa",
    b"aaa",  # as official vocabularies have it: twice the same string
    b"no ",
    b"",  # an id without a string
    b"\xff[3]",
    b"<end>",  # control
    b"yes",  # control, spelled like text
    b"<stop>",  # control
]
CONTROL = [len(WORDS) - 3, len(WORDS) - 2, len(WORDS) - 1]
ENDS = [len(WORDS) - 3, len(WORDS) - 1]
WIDTH = len(WORDS) + 37  # more rows of logits than tokens


def compiler(ends: Sequence[int] = ENDS, *, greedy: bool = False) -> GrammarCompiler:
    """``greedy``: the tokenizer's own encoding is of no use."""

    def encode(text: str) -> list[int]:
        return [0] if greedy else list(text.encode())

    return GrammarCompiler(
        GrammarVocabulary(
            WIDTH, lambda i: WORDS[i] if i < len(WORDS) else b"", CONTROL, ends, encode
        )
    )


def allowed(matcher: GrammarMatcher) -> set[int]:
    (mask,) = MaskFiller(1).fill([matcher])
    assert matcher.error is None
    assert mask.dtype == np.uint32
    assert mask.shape == (-(-WIDTH // 32),)
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())


def choice(choices: Sequence[str] = CHOICES) -> StructuredOutputsParams:
    return StructuredOutputsParams(choice=choices)


def expected(written: bytes) -> set[int]:
    """Tokens after ``written``: text that a choice begins with, and an end after a whole one."""
    texts = [text.encode() for text in CHOICES]
    tokens = {
        i
        for i, word in enumerate(WORDS)
        if i not in CONTROL and word and any(text.startswith(written + word) for text in texts)
    }
    return tokens | (set(ENDS) if written in texts else set())


@pytest.mark.parametrize("seed", range(40))
def test_a_mask_has_the_tokens_that_lead_to_a_choice_and_no_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matcher = compiler().matcher(choice())
    written = b""
    while not matcher.finished:
        tokens = allowed(matcher)
        open_tokens = expected(written)
        assert tokens <= open_tokens
        if tokens != open_tokens:  # one way only: as the tokenizer writes it
            rest = {text.encode() for text in CHOICES if text.encode().startswith(written)}
            assert len({text[len(written) : len(written) + 1] for text in rest}) == 1
            assert tokens
        token = int(rng.choice(sorted(tokens)))
        matcher.accept(token)
        assert matcher.error is None
        written += b"" if token in ENDS else WORDS[token]
    assert written.decode() in CHOICES


def test_ends_are_allowed_only_where_the_grammar_may_end() -> None:
    matcher = compiler().matcher(StructuredOutputsParams(regex="ab?"))
    assert not allowed(matcher) & set(ENDS)
    matcher.accept(ord("a"))
    assert allowed(matcher) >= {*ENDS, ord("b")}
    assert not matcher.finished
    matcher.accept(ord("b"))
    assert allowed(matcher) == set(ENDS)
    assert not matcher.finished
    matcher.accept(ENDS[1])
    assert matcher.finished


def test_an_end_is_the_last_resort_of_an_answer_that_is_to_go_on() -> None:
    matcher = compiler().matcher(StructuredOutputsParams(regex="ab?"), ignore_eos=True)
    matcher.accept(ord("a"))
    assert allowed(matcher) == {ord("b")}
    matcher.accept(ord("b"))
    assert allowed(matcher) == set(ENDS)


def test_a_vocabulary_without_an_end_is_finished_where_the_grammar_is() -> None:
    matcher = compiler(ends=()).matcher(StructuredOutputsParams(regex="ab?"))
    matcher.accept(ord("a"))
    assert not matcher.finished
    assert allowed(matcher) == {ord("b")}
    matcher.accept(ord("b"))
    assert matcher.finished
    assert matcher.error is None


def test_a_token_that_does_not_fit_is_an_error_for_good() -> None:
    matcher = compiler().matcher(choice())
    matcher.accept(ord("y"))
    matcher.accept(ord("y"))
    assert matcher.error is not None
    assert "\n" not in matcher.error
    early = compiler().matcher(choice())
    early.accept(ENDS[0])
    assert early.error is not None
    assert not early.finished


def test_a_tokenizer_that_writes_something_else_is_not_followed() -> None:
    matcher = compiler(greedy=True).matcher(choice(["aaaa", "aaab"]))
    assert allowed(matcher) <= {i for i, word in enumerate(WORDS) if word and set(word) == {97}}
    for _ in range(4):
        if matcher.finished:
            break
        matcher.accept(max(allowed(matcher) - set(ENDS) or allowed(matcher)))
        assert matcher.error is None


@pytest.mark.parametrize("seed", range(8))
def test_a_matcher_is_rebuilt_from_the_tokens(seed: int) -> None:
    """As after a preemption: the state is a function of grammar and tokens."""
    rng = np.random.default_rng(seed)
    grammar = StructuredOutputsParams(
        json={"type": "object", "properties": {"水": {"type": "array", "maxItems": 3}}}
    )
    grammars = compiler()
    matcher, tokens = grammars.matcher(grammar), []
    for _ in range(30):
        now = allowed(matcher)
        rebuilt = grammars.matcher(grammar, accepted=tokens)
        assert allowed(rebuilt) == now
        assert rebuilt.finished == matcher.finished
        tokens.append(int(rng.choice(sorted(now))))
        matcher.accept(tokens[-1])
        if matcher.finished:
            assert grammars.matcher(grammar, accepted=tokens).finished
            return


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_masks_do_not_depend_on_threads_or_neighbours(num_threads: int) -> None:
    grammars = compiler()
    asked = [choice(), StructuredOutputsParams(regex="[a-y]+z"), StructuredOutputsParams(json={})]
    filler = MaskFiller(num_threads)

    def fresh() -> list[GrammarMatcher]:
        return [grammars.matcher(asked[i % 3]) for i in range(12)]

    together = filler.fill(fresh())
    alone = [MaskFiller(1).fill([matcher])[0] for matcher in fresh()]
    assert len({mask.tobytes() for mask in alone}) == 3
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)
    assert filler.fill([]) == []


def test_a_failed_matcher_does_not_harm_those_beside_it() -> None:
    grammars = compiler()
    failed, fine = grammars.matcher(choice()), grammars.matcher(choice())
    failed.accept(ord("?"))
    _, mask = MaskFiller(2).fill([failed, fine])
    assert failed.error is not None
    assert fine.error is None
    np.testing.assert_array_equal(mask, MaskFiller(1).fill([grammars.matcher(choice())])[0])


def test_a_compiler_leaves_nothing_behind() -> None:
    """The library holds the vocabulary where no garbage collector sees a circle through it."""

    def encode(text: str) -> list[int]:
        return list(text.encode())

    held = weakref.ref(encode)
    grammars = GrammarCompiler(
        GrammarVocabulary(257, lambda i: bytes([i]) if i < 256 else b"<end>", [256], [256], encode)
    )
    assert grammars.matcher(choice()).error is None
    del encode, grammars
    gc.collect()
    assert held() is None
