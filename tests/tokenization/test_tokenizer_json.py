from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from farthing.errors import ModelFormatError, ModelNotFoundError
from farthing.tokenization import IncrementalDetokenizer, JsonTokenizerFile, Tokenizer


def test_ids_equal_the_library_s(trained: Any, texts: Any) -> None:
    ours = Tokenizer.from_file(trained.path, trained.config)
    for text in texts(2_000, seed=11, extra=ours.control_tokens):
        expected = trained.library.encode(text).ids
        assert ours.encode(text, allow_control=True) == expected, text


def test_the_gguf_and_the_json_form_of_a_vocabulary_agree(trained: Any, texts: Any) -> None:
    from_gguf = Tokenizer.from_gguf(trained.gguf)
    from_json = Tokenizer.from_file(trained.path, trained.config)
    assert from_gguf.control_ids == from_json.control_ids
    assert from_gguf.eos_token_ids == from_json.eos_token_ids
    assert from_gguf.bos_token_id == from_json.bos_token_id
    for text in texts(500, seed=12, extra=from_gguf.control_tokens):
        assert from_gguf.encode(text) == from_json.encode(text)
    for i in range(from_json.vocab_size):
        assert from_gguf.token_bytes(i) == from_json.token_bytes(i)
        assert from_gguf.id_to_token(i) == from_json.id_to_token(i)


def test_special_tokens_around_a_text_are_the_file_s(llama3: Any, qwen2: Any) -> None:
    tokenizer = Tokenizer.from_file(llama3.path, llama3.config)
    bare = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.encode("hello") == [tokenizer.bos_token_id, *bare]
    assert tokenizer.encode("") == [tokenizer.bos_token_id]
    assert Tokenizer.from_file(qwen2.path, qwen2.config).encode("") == []


def test_ends_of_an_answer_are_the_generation_config_s_if_it_has_any(qwen2: Any) -> None:
    listed = JsonTokenizerFile(qwen2.path, {"eos_token": {"content": "<|im_end|>"}}, (7,))
    tokenizer = Tokenizer.from_source(listed)
    end, other = (tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>"))
    assert tokenizer.eos_token_ids == (end, 7)
    assert Tokenizer.from_source(replace(listed, eos_token_ids=())).eos_token_ids == (end, other)


def test_truncation_and_padding_in_the_file_are_ignored(qwen2: Any, tmp_path: Path) -> None:
    library = Library.from_file(str(qwen2.path))
    library.enable_truncation(3)
    library.enable_padding(length=5)
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    text = "the quick brown fox"
    expected = qwen2.library.encode(text).ids
    assert Tokenizer.from_file(path, {}).encode(text) == expected


def sentencepiece_like(folder: Path, *, legacy: bool) -> tuple[Library, Path]:
    """A BPE vocabulary in the manner of Llama 2: '▁' for spaces, bytes as a last resort."""
    library = Library(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        library.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special + [f"<0x{i:02X}>" for i in range(256)],
        show_progress=False,
    )
    library.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 5, trainer)
    state = json.loads(library.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] in special]
    library = Library.from_str(json.dumps(state))
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    path = folder / "tokenizer.json"
    library.save(str(path))
    return library, path


@pytest.mark.parametrize("legacy", [False, True])
def test_a_sentencepiece_vocabulary_agrees_with_the_library(
    tmp_path: Path, texts: Any, legacy: bool
) -> None:
    library, path = sentencepiece_like(tmp_path, legacy=legacy)
    ours = Tokenizer.from_file(path, {"eos_token": "</s>"})
    samples = texts(500, seed=13, extra=("the", " fox", "<s>", "</s>", "\ufffd"))
    samples += ["<s>the fox</s> the <s> fox", "the", " the", "  the", ""]
    for text in samples:
        ids = library.encode(text).ids
        assert ours.encode(text, allow_control=True) == ids, text
        assert ours.decode(ids) == library.decode(ids), text
        detokenizer = IncrementalDetokenizer(ours)
        assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == ours.decode(ids)
        assert ours.control_ids.isdisjoint(ours.encode(text))


def test_a_continuation_keeps_its_first_space(tmp_path: Path) -> None:
    library, path = sentencepiece_like(tmp_path, legacy=False)
    tokenizer = Tokenizer.from_file(path, {})
    ids = library.encode("the fox").ids
    assert tokenizer.decode(ids) == "the fox"
    assert tokenizer.decode(ids, continuation=True) == " the fox"
    detokenizer = IncrementalDetokenizer(tokenizer, continuation=True)
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == " the fox"


def test_holes_in_the_ids_have_no_string(qwen2: Any, tmp_path: Path) -> None:
    state = json.loads(qwen2.path.read_text())
    state["model"]["vocab"]["far"] = 9_999
    state["added_tokens"] = []
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    tokenizer = Tokenizer.from_file(path, {})
    assert tokenizer.vocab_size == 10_000
    assert tokenizer.id_to_token(9_000) is None
    assert tokenizer.token_bytes(9_000) == b""


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json: no such file"):
        Tokenizer.from_file(path, {})
    path.write_text("{}")
    with pytest.raises(ModelFormatError, match=r"tokenizer\.json: is not a tokenizer"):
        Tokenizer.from_file(path, {})
    for content in (b"", b"\xff", b'{"model": {"type": "BPE"'):
        path.write_bytes(content)
        with pytest.raises(ModelFormatError, match=r"tokenizer\.json: JSON \(byte \d+\): is not"):
            Tokenizer.from_file(path, {})


def test_other_models_and_decoders_are_refused_by_name(qwen2: Any, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    library = Library(models.WordLevel({"a": 0}, unk_token="a"))
    library.save(str(path))
    with pytest.raises(ModelFormatError, match=r"model: .*'WordLevel'.*'BPE'"):
        Tokenizer.from_file(path, {})
    library = Library.from_file(str(qwen2.path))
    library.decoder = decoders.WordPiece()
    library.add_tokens([AddedToken("x1")])
    library.save(str(path))
    with pytest.raises(ModelFormatError, match=r"decoder: .*WordPiece.*ByteLevel"):
        Tokenizer.from_file(path, {})
