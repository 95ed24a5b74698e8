"""The normalizers, pre-tokenizers, decoders and added tokens that the families' files have."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Library

from farthing.errors import InvalidParameterError
from farthing.tokenization import IncrementalDetokenizer, Tokenizer

pytestmark = pytest.mark.usefixtures("others_garbage")

BYTES = [f"<0x{i:02X}>" for i in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]
SPACED = [
    decoders.Replace("▁", " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
    decoders.Strip(content=" ", left=1),
]


def llama2(library: Library) -> None:
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(SPACED)


def mistral(library: Library) -> None:
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence(SPACED)


def metaspace(library: Library) -> None:
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    library.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    )


def gemma(library: Library) -> None:
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    library.decoder = decoders.Sequence(SPACED[:3])


def no_prefix(library: Library) -> None:
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    library.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]
    )


SHAPES: list[Callable[[Library], None]] = [llama2, mistral, metaspace, gemma, no_prefix]


def by_bytes(*steps: Any) -> Callable[[Library], None]:
    def shape(library: Library) -> None:
        library.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
        library.decoder = decoders.ByteLevel()

    return shape


def byte_level(use_regex: bool = True) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


BYTE_LEVEL = {
    "digits": by_bytes(pre_tokenizers.Digits(individual_digits=True), byte_level()),
    "falcon": by_bytes(
        pre_tokenizers.Punctuation("contiguous"),
        byte_level(),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), behavior="isolated"),
    ),
    "olmo 2": by_bytes(
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\p{L}+|\s+|[^\s\p{L}\p{N}]+"), "removed", True),
        byte_level(False),
    ),
}


def trained(shape: Callable[[Library], None], texts: Any, *, fallback: bool) -> Library:
    special = [*SPECIAL, *BYTES] if fallback else SPECIAL
    library = Library(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
        if fallback
        else models.BPE()
    )
    shape(library)
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=special,
        limit_alphabet=150 if fallback else 10_000,
        max_token_length=12,
        initial_alphabet=[] if fallback else pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    samples = [text.replace("<0x", "").replace("<s>", "")[:40] for text in texts(400, seed=61)]
    library.train_from_iterator(samples, trainer)
    state = json.loads(library.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in SPECIAL]
    library = Library.from_str(json.dumps(state))
    library.add_special_tokens(
        [
            AddedToken("<|user|>", rstrip=True, normalized=False),
            AddedToken("<|end|>", lstrip=True, rstrip=True, normalized=False),
        ]
    )
    library.add_tokens(
        [
            AddedToken("<tool>", normalized=False),
            AddedToken("[LEFT]", lstrip=True, normalized=False),
            AddedToken("[RIGHT]", rstrip=True, normalized=False),
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("norm al", normalized=True),
            AddedToken("▁▁", normalized=False),
        ]
    )
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return library


EXTRA = (
    *("<tool>", " [LEFT]", "[LEFT] ", " [RIGHT] ", "word", " word ", "words", "norm al", "▁▁"),
    *("<s>", "</s>", " <|user|>\n", "<|end|> ", "<unk>", "\ufffd"),
)


def agree(library: Library, path: Path, texts: Any) -> Tokenizer:
    """Assert that ours and the library do with the same file the same."""
    library.save(str(path))
    ours = Tokenizer.from_file(path, {"bos_token": "<s>", "eos_token": "</s>"})
    samples = [*texts(1_000, seed=62, extra=EXTRA), "", " ", "the", " the", "<s>the</s> the"]
    library.encode_special_tokens = False
    for text, encoding in zip(samples, library.encode_batch(samples), strict=True):
        assert ours.encode(text, allow_control=True) == encoding.ids, text
    library.encode_special_tokens = True
    for text, encoding in zip(samples, library.encode_batch(samples), strict=True):
        ids = encoding.ids
        assert ours.encode(text) == ids, text
        assert (ours.control_ids - {0}).isdisjoint(ids[1:])
        if not (text.startswith((" ", "▁")) and type(library.decoder) is not decoders.ByteLevel):
            # Of several spaces at the beginning, some of the library's decoders leave none.
            assert ours.decode(ids) == library.decode(ids), text
        detokenizer = IncrementalDetokenizer(ours)
        assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == ours.decode(ids)
    return ours


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_ids_and_texts_equal_the_library_s(shape: Any, texts: Any, tmp_path: Path) -> None:
    library = trained(shape, texts, fallback=True)
    ours = agree(library, tmp_path / "tokenizer.json", texts)
    for text in texts(500, seed=63):
        if "▁▁" in text and shape in (llama2, metaspace):
            continue  # an added token here, behind which these write one space more
        back = text.replace("▁", " ")
        if shape in (mistral, metaspace):  # these write no space before a text that has one
            assert ours.decode(ours.encode(text)) == back.removeprefix(" "), text
        else:
            assert ours.decode(ours.encode(text)) == back, text


@pytest.mark.parametrize("name", sorted(BYTE_LEVEL))
def test_byte_level_ids_and_texts_equal_the_library_s(
    name: str, texts: Any, tmp_path: Path
) -> None:
    library = trained(BYTE_LEVEL[name], texts, fallback=False)
    ours = agree(library, tmp_path / "tokenizer.json", texts)
    for text in texts(500, seed=64):
        assert ours.decode(ours.encode(text)) == text


def test_a_unigram_model_agrees_with_the_library(texts: Any, tmp_path: Path) -> None:
    library = Library(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False,
    )  # fmt: skip
    library.train_from_iterator([text[:40] for text in texts(500, seed=65)], trainer)
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    library = Library.from_file(str(path))  # scores are rounded on the way
    ours = Tokenizer.from_file(path, {"eos_token": "</s>"})
    unknown = library.token_to_id("<unk>")
    samples = texts(1_000, seed=66, extra=("</s>", "\u4e02"))
    library.encode_special_tokens = True
    seen = 0
    for text, encoding in zip(samples, library.encode_batch(samples), strict=True):
        ids = ours.encode(text)
        assert (ours.control_ids - {unknown}).isdisjoint(ids)
        if (ours.control_ids - {unknown}).isdisjoint(encoding.ids):
            assert ids == encoding.ids, text
        seen += unknown in ids
    assert seen > 100


def test_what_is_unknown_becomes_no_end_of_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for unknown in ("<unk>", "</s>"):
        library = Library(models.BPE({"a": 0, "<unk>": 1, "</s>": 2}, [], unk_token=unknown))
        library.decoder = decoders.Fuse()
        library.add_special_tokens(["<unk>", "</s>"])
        library.save(str(path))
        tokenizer = Tokenizer.from_file(path, {"eos_token": "</s>"})
        assert tokenizer.encode("aa") == [0, 0]
        if unknown == "<unk>":
            assert tokenizer.encode("ab") == [0, 1]
            assert tokenizer.decode([0, 1]) == "a"
        else:
            for _ in range(2):
                with pytest.raises(InvalidParameterError, match="only encode as a control token"):
                    tokenizer.encode("ab")
            assert tokenizer.encode("aa") == [0, 0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_merges_that_spell_a_control_token_are_not_used(
    shape: Any, texts: Any, tmp_path: Path
) -> None:
    library = trained(shape, texts, fallback=True)
    state = json.loads(library.to_str())
    vocabulary = state["model"]["vocab"]
    for piece in ("<", "s", ">"):
        assert piece in vocabulary
    added = {token["content"] for token in state["added_tokens"]} - vocabulary.keys()
    moved = {token: i + 1 for i, token in enumerate(added, start=len(vocabulary))}
    vocabulary["s>"] = len(vocabulary)
    state["model"]["merges"][:0] = [["s", ">"], ["<", "s>"]]
    state["model"]["merges"].append(["<s>", "<s>"])
    vocabulary["<s><s>"] = len(vocabulary)
    for token in state["added_tokens"]:
        token["id"] = vocabulary.get(token["content"], moved.get(token["content"], 0) + 1)
    state["added_tokens"].sort(key=lambda token: token["id"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    spelled = Library.from_file(str(path))
    spelled.encode_special_tokens = True
    assert 1 in spelled.encode("x<s>y", add_special_tokens=False).ids

    ours = Tokenizer.from_file(path, {})
    before = ours.encode("the <tool> fox", add_special_tokens=False)
    for text in ("<s>", "x<s>y<s>", "<s><s><s>", "a <s>", " <s> of"):
        ids = ours.encode(text, add_special_tokens=False)
        assert ours.control_ids.isdisjoint(ids)
        kept = text if shape in (llama2, gemma, no_prefix) else text.removeprefix(" ")
        assert ours.decode(ids) == kept
    assert ours.encode("the <tool> fox", add_special_tokens=False) == before
    assert ours.encode("<s>a", allow_control=True, add_special_tokens=False)[0] == 1


def test_threads_may_meet_such_merges_together(texts: Any, tmp_path: Path) -> None:
    library = trained(llama2, texts, fallback=True)
    state = json.loads(library.to_str())
    state["model"]["merges"][:0] = [["<", "s"], ["<s", ">"]]
    vocabulary = state["model"]["vocab"]
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in SPECIAL]
    vocabulary.setdefault("<s", len(vocabulary))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    ours = Tokenizer.from_file(path, {})
    expected = Tokenizer.from_file(path, {}).encode("a<s>b" * 50, add_special_tokens=False)
    results: list[list[int]] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(ours.encode("a<s>b" * 50, add_special_tokens=False))
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 6
    assert ours.control_ids.isdisjoint(expected)


@pytest.mark.parametrize("shape", [llama2, mistral, gemma], ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "你", "the quick brown fox. "])
def test_long_texts_take_well_under_a_second(
    shape: Any, unit: str, texts: Any, tmp_path: Path
) -> None:
    library = trained(shape, texts, fallback=True)
    library.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_file(tmp_path / "tokenizer.json", {})
    text = "x" + unit * (100_000 // len(unit))
    started = time.thread_time()
    ids = ours.encode(text)
    assert time.thread_time() - started < 0.9
    assert ours.decode(ids) == text
