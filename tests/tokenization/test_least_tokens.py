"""The fewest tokens of a text: never more than it is, for vocabularies of every kind."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers

from farthing.errors import TooManyTokensError
from farthing.tokenization import GgufVocabulary, Tokenizer
from farthing.tokenization.least_tokens import Kept, LeastTokens
from farthing.tokenization.prompt_encoder import PromptEncoder
from support.random_texts import random_texts

MANY = [
    "ab " * 5000,
    "\n\n\t x" * 3000,
    "e\u0301" * 4000,
    "\u212a \u037e\u1fef" * 3000,
    "=\u0338 <\u0338" * 2000,
    "中文字" * 3000,
    "한국어 " * 3000,
    "\u1112\u1161\u11ab" * 2000,
    "привет " * 3000,
    "\u2581" * 4000 + " \u2581a" * 2000,
    " " * 9000,
    "-" * 9000,
    "<|im_start|>" * 1000,
    "<tool_call> </tool_call>" * 500,
    "\0\x7f\u200b🌾" * 2000,
]


def least(tokenizer: Tokenizer, text: str) -> int:
    return tokenizer.least_tokens.of(text.encode())


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A ``tokenizer.json`` in the manner of Llama 2: pieces, and bytes for what is none."""
    strings = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abxc中", "▁a", "▁ab", "▁▁"]
    model = models.BPE(
        vocab={string: number for number, string in enumerate(strings)},
        merges=[("▁", "a"), ("▁a", "b"), ("▁", "▁")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    library = tokenizers.Tokenizer(model)
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    library.normalizer = normalizers.Sequence(steps)
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    library.add_tokens([AddedToken("<tool_call>", normalized=True)])
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.json"
    library.save(str(path))
    return Tokenizer.from_file(path)


@pytest.fixture(scope="module")
def all_kinds(
    qwen2: Any, llama3: Any, llama2: Any, gemma: Any, pieces: Tokenizer
) -> list[Tokenizer]:
    """As they come in GGUF files, and as files of their own."""
    found = [Tokenizer.from_gguf(each.gguf) for each in (qwen2, llama3, llama2, gemma)]
    found += [Tokenizer.from_file(each.path, each.config) for each in (qwen2, llama3)]
    return [*found, pieces]


def test_no_text_is_fewer(all_kinds: list[Tokenizer]) -> None:
    random_cuts = random.Random(3)
    texts = random_texts(300, seed=9) + MANY
    texts += [
        "".join(random_cuts.sample(MANY, 3))[: random_cuts.randrange(9000)] for _ in range(40)
    ]
    for tokenizer in all_kinds:
        for text in texts:
            for allow in (False, True):
                ids = tokenizer.encode(text, add_special_tokens=False, allow_control=allow)
                assert least(tokenizer, text) <= len(ids), text[:50]


def test_no_short_text_is_fewer(all_kinds: list[Tokenizer]) -> None:
    characters = "ab =\u0338\u0301é\u212a\u2581\t\n中\uac00\u11a8\u1161<|>🌾"

    @given(st.text(alphabet=st.sampled_from(characters)))
    def check(text: str) -> None:
        for tokenizer in all_kinds:
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert least(tokenizer, text) <= len(ids)

    check()


def test_what_is_far_too_long_is_seen(all_kinds: list[Tokenizer]) -> None:
    """The bound is of use: of three words of prose, one is counted."""
    prose = "The miller weighs the flour of the day, and so he did. " * 400
    for tokenizer in all_kinds:
        assert 3 * least(tokenizer, prose) >= len(prose.split())
        assert least(tokenizer, "中文字" * 3000) > 100


def test_composing_takes_no_white_space_and_no_ideograph() -> None:
    """What the counts rest on, of all of Unicode."""
    stays = range(0x4000, 0xA000), range(0xB000, 0xD000)
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        apart = unicodedata.normalize("NFD", character)
        if apart == character:
            continue
        assert not set(apart) & set(" \t\n\v\f\r"), hex(code)
        assert not any(code in stay for stay in stays[:1]), hex(code)
        together = unicodedata.normalize("NFC", apart)
        if any(ord(each) in stays[0] for each in apart):  # of an ideograph nothing is made
            assert len(apart) == 1
        if any(ord(each) in stays[1] for each in together):
            assert len(together) == 1
            assert ord(apart[0]) in range(0x1100, 0x1200) or code in stays[1]


class Losing:
    """Changes of a ``tokenizer.json`` after which tokens no longer are all of a text."""

    @staticmethod
    def normalizer(state: dict[str, Any]) -> None:
        state["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}

    @staticmethod
    def pre_tokenizer(state: dict[str, Any]) -> None:
        steps = state["pre_tokenizer"]["pretokenizers"]
        steps.insert(0, {"type": "WhitespaceSplit"})

    @staticmethod
    def removed(state: dict[str, Any]) -> None:
        state["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"

    @staticmethod
    def strip(state: dict[str, Any]) -> None:
        state["added_tokens"][-1]["rstrip"] = True

    @staticmethod
    def byte(state: dict[str, Any]) -> None:
        vocabulary = state["model"]["vocab"]
        vocabulary["gone"] = vocabulary.pop("Ā")
        merges = state["model"]["merges"]
        merges[:] = [pair for pair in merges if "Ā" not in pair[0] + pair[1]]


@pytest.mark.parametrize(
    "change",
    [Losing.normalizer, Losing.pre_tokenizer, Losing.removed, Losing.strip, Losing.byte],
)
def test_nothing_is_said_where_text_is_lost(
    change: Callable[[dict[str, Any]], None], llama3: Any, tmp_path: Path
) -> None:
    state = json.loads(llama3.path.read_text())
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    assert least(Tokenizer.from_file(path, llama3.config), "ab " * 5000) > 1000
    change(state)
    path.write_text(json.dumps(state))
    assert least(Tokenizer.from_file(path, llama3.config), "ab " * 5000) == 0


def test_nothing_is_said_where_white_space_is_taken_out(single_spaced: Any) -> None:
    tokenizer = Tokenizer.from_gguf(single_spaced.gguf)
    assert len(tokenizer.encode("a" + " " * 5000 + "b")) < 10
    assert least(tokenizer, "a" + " " * 5000 + "b") == 0


def test_nothing_is_said_of_a_gguf_file_without_all_bytes(qwen2: Any) -> None:
    from dataclasses import replace

    tokens = ["gone" if token == "Ā" else token for token in qwen2.gguf.tokens]
    merges = [merge for merge in qwen2.gguf.merges if "Ā" not in merge]
    lacking: GgufVocabulary = replace(qwen2.gguf, tokens=tokens, merges=merges)
    assert least(Tokenizer.from_gguf(lacking), "ab " * 5000) == 0


def test_encoding_is_not_begun_where_it_is_plainly_too_much(qwen2: Any) -> None:
    encoder = PromptEncoder(Tokenizer.from_gguf(qwen2.gguf), None, 10_000)
    with pytest.raises(TooManyTokensError, match="at least") as refused:
        encoder.encode("ab " * 5000, most=1000)
    assert 1000 < refused.value.least <= len(encoder.encode("ab " * 5000))
    with pytest.raises(TooManyTokensError):
        encoder.encode_chat([{"role": "user", "content": "ab " * 5000}], most=1000)
    assert len(encoder.encode("ab " * 500, most=1000)) > 500


def test_counts_by_hand() -> None:
    made = LeastTokens([b"ab", b" ab", b"  ", b"--"], Kept.ALL, escaped=False)
    texts = b"abababab", b"-----", b" ab ab ab ab ab", b""
    assert [made.of(text) for text in texts] == [4, 3, 5, 0]
