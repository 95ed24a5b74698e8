"""Vocabularies are the same where every id stands for the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from farthing.evaluation.vocabulary import OtherToken, Vocabulary
from farthing.tokenization.byte_level import BYTE_TO_CHARACTER
from farthing.tokenization.source import GgufVocabulary, JsonTokenizerFile

SPECIAL = 4  # the first ids, of control tokens


@pytest.fixture(scope="module")
def json_file(reference_model: Path) -> JsonTokenizerFile:
    return JsonTokenizerFile(reference_model / "tokenizer.json")


@pytest.fixture(scope="module")
def gguf(json_file: JsonTokenizerFile) -> GgufVocabulary:
    """The same vocabulary as converters write it, filled up by five places."""
    model = json.loads(json_file.path.read_text())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    padding = [f"[PAD{len(tokens) + i}]" for i in range(5)]
    return GgufVocabulary(
        model="gpt2",
        pre="qwen2",
        tokens=[*tokens, *padding],
        token_types=[3] * SPECIAL + [1] * (len(tokens) - SPECIAL) + [5] * len(padding),
        merges=[" ".join(pair) for pair in model["merges"]],
    )


def count_of(gguf: GgufVocabulary) -> int:
    return len(gguf.tokens) + 3  # a model has rows for more


def test_files_of_one_model_have_the_same_tokens(
    json_file: JsonTokenizerFile, gguf: GgufVocabulary
) -> None:
    one, other = Vocabulary(json_file), Vocabulary(gguf)
    count = count_of(gguf)
    assert all(one.token_bytes(i) == other.token_bytes(i) for i in range(count))
    assert one.token_bytes(SPECIAL) != b""
    assert one.first_other_token(other, count) is None
    assert other.first_other_token(one, count) is None


def test_places_filled_up_differently_are_passed_over(gguf: GgufVocabulary) -> None:
    other = replace(gguf, tokens=[*gguf.tokens[:-5], *(f"<dummy{i}>" for i in range(5))])
    assert Vocabulary(gguf).first_other_token(Vocabulary(other), count_of(gguf)) is None
    used = replace(other, token_types=[*other.token_types[:-5], *[3] * 5])
    assert Vocabulary(gguf).first_other_token(Vocabulary(used), count_of(gguf)) is None
    twice = replace(gguf, token_types=used.token_types)
    expected = OtherToken(len(gguf.tokens) - 5, gguf.tokens[-5].encode(), b"<dummy0>")
    assert Vocabulary(twice).first_other_token(Vocabulary(used), count_of(gguf)) == expected


@pytest.mark.parametrize("where", [SPECIAL, 100, -6])
def test_another_string_is_found(
    where: int, json_file: JsonTokenizerFile, gguf: GgufVocabulary
) -> None:
    tokens = list(gguf.tokens)
    at = where % len(tokens)
    tokens[at] = "".join(BYTE_TO_CHARACTER[byte] for byte in b" never seen")
    other = Vocabulary(replace(gguf, tokens=tokens, merges=[]))
    found = other.first_other_token(Vocabulary(json_file), count_of(gguf))
    assert found is not None
    assert (found.id, found.one) == (at, b" never seen")
    assert found.other == Vocabulary(json_file).token_bytes(at)


def test_spaces_of_added_tokens_are_spelled_in_two_ways(gguf: GgufVocabulary) -> None:
    at = len(gguf.tokens) - 6
    kinds = [*gguf.token_types[:at], 4, *gguf.token_types[at + 1 :]]

    def spelled(text: str) -> Vocabulary:
        tokens = [*gguf.tokens[:at], text, *gguf.tokens[at + 1 :]]
        return Vocabulary(replace(gguf, tokens=tokens, token_types=kinds, merges=[]))

    assert spelled("a▁b").first_other_token(spelled("a b"), count_of(gguf)) is None
    assert spelled("a▁b").first_other_token(spelled("a_b"), count_of(gguf)) is not None
