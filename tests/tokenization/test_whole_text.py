"""GGUF vocabularies merged over whole texts, as Gemma 4's."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, trainers
from tokenizers import Tokenizer as Library

from farthing.errors import ModelFormatError
from farthing.tokenization import GgufVocabulary, IncrementalDetokenizer, Tokenizer

pytestmark = pytest.mark.usefixtures("others_garbage")

CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>")
SHOWN = ("<|tool_call>", "<tool_call|>", '<|"|>')  # user-defined in files, special in the original
BYTES = tuple(f"<0x{i:02X}>" for i in range(256))


@pytest.fixture(scope="module")
def library(texts: Any) -> Library:
    """A vocabulary in the manner of Gemma's ``tokenizer.json``."""
    library = Library(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=[*CONTROL, *SHOWN, *BYTES],
        limit_alphabet=150,
        max_token_length=12,
        show_progress=False,
    )
    samples = [text[:40].replace("<0x", "") for text in texts(400, seed=31)]
    library.train_from_iterator(samples, trainer)
    state = json.loads(library.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] not in BYTES]
    library = Library.from_str(json.dumps(state))
    library.add_tokens([AddedToken("<img>", normalized=False)])
    return library


@pytest.fixture(scope="module")
def vocabulary(library: Library) -> GgufVocabulary:
    state = json.loads(library.to_str())
    tokens = [library.id_to_token(i) or "" for i in range(library.get_vocab_size())]
    kinds = {**dict.fromkeys(CONTROL, 3), **dict.fromkeys(SHOWN, 4), **dict.fromkeys(BYTES, 6)}
    return GgufVocabulary(
        model="gemma4",
        pre="",
        tokens=tokens,
        token_types=[4 if token == "<img>" else kinds.get(token, 1) for token in tokens],
        merges=[" ".join(pair) for pair in state["model"]["merges"]],
        bos_id=2,
        eos_id=1,
        unknown_id=3,
    )


def test_ids_and_texts_equal_the_library_s(
    library: Library, vocabulary: GgufVocabulary, texts: Any
) -> None:
    ours = Tokenizer.from_gguf(vocabulary)
    samples = texts(3_000, seed=32, extra=("<img>", " the", "<|turn>", "<turn|>"))
    library.encode_special_tokens = False
    for text, encoding in zip(samples, library.encode_batch(samples), strict=True):
        ids = ours.encode(text, add_special_tokens=False, allow_control=True)
        assert ids == encoding.ids, text
    library.encode_special_tokens = True
    for text, encoding in zip(samples, library.encode_batch(samples), strict=True):
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == encoding.ids, text
        assert ours.control_ids.isdisjoint(ids)
        assert ours.decode(ids) == library.decode(ids) == text.replace("▁", " ")
        detokenizer = IncrementalDetokenizer(ours)
        assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == ours.decode(ids)


def test_the_json_form_agrees(
    library: Library, vocabulary: GgufVocabulary, texts: Any, tmp_path: Path
) -> None:
    library.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<bos>", "eos_token": "<eos>"}
    from_json = Tokenizer.from_file(tmp_path / "tokenizer.json", config)
    from_gguf = Tokenizer.from_gguf(vocabulary)
    assert from_json.control_ids == from_gguf.control_ids
    assert (
        from_json.eos_token_ids == from_gguf.eos_token_ids == (1, from_gguf.token_to_id("<turn|>"))
    )
    for text in texts(300, seed=33, extra=(*SHOWN, "<|turn>", "<img>")):
        assert from_json.encode(text, add_special_tokens=False) == from_gguf.encode(
            text, add_special_tokens=False
        )
    for i in range(from_json.vocab_size):
        assert from_json.token_bytes(i) == from_gguf.token_bytes(i)


def test_the_same_under_the_name_of_byte_level_files(
    vocabulary: GgufVocabulary, texts: Any
) -> None:
    named = Tokenizer.from_gguf(vocabulary)
    other = Tokenizer.from_gguf(replace(vocabulary, model="gpt2", pre="gemma4"))
    for text in texts(200, seed=34):
        assert named.encode(text) == other.encode(text)


def test_marks_that_files_list_as_user_defined_are_control_tokens(
    vocabulary: GgufVocabulary,
) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary)
    for mark in (*CONTROL, *SHOWN):
        token_id = tokenizer.token_to_id(mark)
        ids = tokenizer.encode(f"a{mark}b", add_special_tokens=False)
        assert token_id not in ids
        assert tokenizer.decode(ids) == f"a{mark}b"
        assert tokenizer.encode(mark, allow_control=True) == [2, token_id]
    assert tokenizer.token_to_id("<img>") not in tokenizer.control_ids


def test_a_text_begins_with_its_mark_unless_the_file_says_otherwise(
    vocabulary: GgufVocabulary,
) -> None:
    assert Tokenizer.from_gguf(vocabulary).encode("") == [2]
    assert Tokenizer.from_gguf(replace(vocabulary, add_bos=False)).encode("") == []


@pytest.mark.parametrize("unit", ["a", " ", "\n", "你", "🙂", "ab ", "\x00"])
def test_long_runs_take_well_under_a_second(vocabulary: GgufVocabulary, unit: str) -> None:
    tokenizer = Tokenizer.from_gguf(vocabulary)
    text = unit * (100_000 // len(unit))
    started = time.thread_time()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert time.thread_time() - started < 0.9
    assert tokenizer.decode(ids) == text


def test_merges_that_spell_a_byte_token_make_none(vocabulary: GgufVocabulary) -> None:
    tokens = [*vocabulary.tokens, "<0", "x6", "1>", "x61>"]
    types = [*vocabulary.token_types, 1, 1, 1, 1]
    merges = ["< 0", "x 6", "1 >", "x6 1>", "<0 x61>", *vocabulary.merges]
    for character in "<0x61>":
        if character not in tokens:
            tokens.append(character)
            types.append(1)
    tokenizer = Tokenizer.from_gguf(
        replace(vocabulary, tokens=tokens, token_types=types, merges=merges)
    )
    ids = tokenizer.encode("a<0x61>", add_special_tokens=False)
    assert [tokenizer.id_to_token(i) for i in ids] == ["a", "<0", "x61>"]
    assert tokenizer.decode(ids) == "a<0x61>"


def test_half_of_the_byte_tokens_is_an_error(vocabulary: GgufVocabulary) -> None:
    types = list(vocabulary.token_types)
    types[vocabulary.tokens.index("<0x00>")] = 1
    with pytest.raises(ModelFormatError, match=r"tokens of 255 bytes; all 256"):
        Tokenizer.from_gguf(replace(vocabulary, token_types=types))
