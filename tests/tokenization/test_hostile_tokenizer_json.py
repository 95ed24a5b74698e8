"""Files called tokenizer.json made to hurt: each is refused by field and byte, or loads."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farthing.errors import FarthingError, InvalidParameterError, ModelFormatError
from farthing.tokenization.json_limits import MAX_ADDED_TEXT, MAX_ID, MAX_TEXT, read_tokenizer_json
from farthing.tokenization.tokenizer import Tokenizer
from support.bounds import bounded

State = dict[str, Any]


def added(number: Any, content: Any = "<e>", **more: Any) -> State:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, "special": True} | flags | more


STATE: State = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [added(3)],
    "normalizer": None,
    "pre_tokenizer": {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
    },
    "post_processor": None,
    "decoder": {
        "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True
    },
    "model": {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]],
    },
}  # fmt: skip


def split(pattern: Any, behavior: str = "Isolated") -> State:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def template(single: list[Any], known: State | None = None) -> State:
    return {
        "type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": known or {}
    }  # fmt: skip


def piece(kind: str, name: str) -> State:
    return {kind: {"id": name, "type_id": 0}}


def sequence(key: str, *steps: Any) -> State:
    return {"type": "Sequence", key: list(steps)}


def double(letter: str = "a") -> State:
    return {"type": "Replace", "pattern": {"String": letter}, "content": letter * 2}


Q = {"Q": {"id": "Q", "ids": [3] * 100, "tokens": ["<e>"] * 100}}

# what is changed (a dot goes into "model"), the field named, what the message says
REFUSED: dict[str, tuple[State, str, str]] = {
    "vocabulary of numbers": ({"model.vocab": 7}, "JSON", "model.vocab is not what"),
    "vocabulary in a vocabulary": ({"model.vocab": {"a": {"b": 1}}}, "JSON", "a token and an id"),
    "id of a float": ({"model.vocab": {"a": 0.5}}, "JSON", "a token and an id"),
    "id below zero": ({"model.vocab": {"a": -1}}, "JSON", "a token and an id"),
    "id of eight digits": ({"model.vocab": {"a": 10**7}}, "JSON", "a token and an id"),
    "id of 2^32 - 1": ({"model.vocab": {"a": 2**32 - 1}}, "JSON", "a token and an id"),
    "id of 10^5 digits": ({"model.vocab": {"a": int("9" * 4000)}}, "JSON", "a token and an id"),
    "id past the limit": ({"model.vocab": {"a": MAX_ID + 1}, "model.merges": []}, "model.vocab",
                          f"id {MAX_ID + 1}, more than"),
    "merges of numbers": ({"model.merges": [1, 2]}, "JSON", "two tokens"),
    "merges of three": ({"model.merges": [["a", "b", "c"]]}, "JSON", "two tokens"),
    "merges in merges": ({"model.merges": [[["a", "b"]]]}, "JSON", "two tokens"),
    "merges of an object": ({"model.merges": {"a": "b"}}, "JSON", "model.merges is not what"),
    "dropout": ({"model.dropout": 0.1}, "model.dropout", "always be the same tokens"),
    "subword prefix": ({"model.continuing_subword_prefix": "aé"},
                       "model.continuing_subword_prefix", "not supported"),
    "long parameter": ({"model.unk_token": "x" * 2000}, "model.unk_token", "2000 characters"),
    "unknown token that is none": ({"model.unk_token": "zz"}, "model.unk_token", "is no token"),
    "added tokens of an object": ({"added_tokens": {}}, "added_tokens", "must be a list"),
    "added token of a string": ({"added_tokens": ["<e>"]}, "added_tokens[0]", "an object"),
    "added id of 2^32 - 1": ({"added_tokens": [added(2**32 - 1)]}, "added_tokens[0].id", "is 4294"),
    "added id below zero": ({"added_tokens": [added(3), added(-1)]}, "added_tokens[1].id", "-1"),
    "added id of a string": ({"added_tokens": [added("3")]}, "added_tokens[0].id", "'3'"),
    "added id of a boolean": ({"added_tokens": [added(True)]}, "added_tokens[0].id", "True"),
    "added token of nothing": ({"added_tokens": [added(3, "")]}, "added_tokens[0].content",
                               "not empty"),
    "added tokens of megabytes": (
        {"added_tokens": [added(3, "x" * MAX_ADDED_TEXT), added(4, "y")]},
        "added_tokens[1].content", "added tokens of over",
    ),
    "replacements that double": (
        {"normalizer": sequence("normalizers", *[double()] * 30)},
        "normalizer.normalizers[7]", "could make a text 256 times as long",
    ),
    "one long replacement": ({"normalizer": double() | {"content": "x" * 900}}, "normalizer",
                             "900 times"),
    "longer replacement": ({"normalizer": double() | {"content": "x" * (MAX_TEXT + 1)}},
                           "normalizer.content", "more than 1024"),
    "replacement of nothing": ({"normalizer": double("")}, "normalizer.pattern", "not empty"),
    "replacement of a pattern that matches nothing": (
        {"normalizer": double() | {"pattern": {"Regex": "a*"}}},
        "normalizer.pattern", "may match nothing",
    ),
    "prepends nothing": ({"normalizer": {"type": "Prepend", "prepend": ""}},
                         "normalizer.prepend", "is empty"),
    "charsmap": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8="}},
                 "normalizer.precompiled_charsmap", "not supported"),
    "nested normalizers": (
        {"normalizer": sequence("normalizers", sequence("normalizers", double() | {"pattern": 1}))},
        "normalizer.normalizers[0].normalizers[0].pattern", "must be a pattern",
    ),
    "very many steps": ({"pre_tokenizer": sequence("pretokenizers", *[{"type": "Digits"}] * 99)},
                        "pre_tokenizer", "more than 64 steps"),
    "steps of an object": ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": {}}},
                           "pre_tokenizer.pretokenizers", "must be a list"),
    "endless pattern": ({"pre_tokenizer": split({"Regex": "(a+)+b"})}, "pre_tokenizer.pattern",
                        "without bound"),
    "endless pattern in a sequence": (
        {"pre_tokenizer": sequence("pretokenizers", split({"Regex": r"(\w|a)*!"}))},
        "pre_tokenizer.pretokenizers[0].pattern", "without bound",
    ),
    "long pattern": ({"pre_tokenizer": split({"Regex": "a" * 5000})}, "pre_tokenizer.pattern",
                     "a pattern of 5000 characters"),
    "pattern of nothing": ({"pre_tokenizer": split({"String": ""})}, "pre_tokenizer.pattern",
                           "not empty"),
    "endless pattern of a decoder": (
        {"decoder": {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": ""}},
        "decoder.pattern", "without bound",
    ),
    "chunks of no length": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}},
                            "pre_tokenizer.length", "not a positive integer"),
    "unknown piece": ({"post_processor": template([piece("SpecialToken", "Q")])},
                      "post_processor.single[0]", "'Q' is not one of"),
    "second text": ({"post_processor": template([piece("Sequence", "B")])},
                    "post_processor.single[0]", "the one text"),
    "very many ids": ({"post_processor": template([piece("SpecialToken", "Q")], Q)},
                      "post_processor", "100 tokens around a text"),
    "step of a string": ({"decoder": "ByteLevel"}, "decoder", "must be an object"),
}  # fmt: skip


def changed(changes: State) -> bytes:
    state = copy.deepcopy(STATE)
    for key, value in changes.items():
        holder, _, name = key.rpartition(".")
        (state[holder] if holder else state)[name] = value
    return json.dumps(state).encode()


def load(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(path, {})
    tokenizer.decode(tokenizer.encode("a b ab <e>"))
    return tokenizer


@pytest.fixture(autouse=True)
def _library() -> None:
    """Importing it is not part of what refusing costs."""
    import tokenizers

    assert tokenizers


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    changes, field, problem = REFUSED[name]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed(changes))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(path)
    error = caught.value
    assert (error.file, error.field) == (path, field), str(error)
    assert problem in str(error)
    # Two are found when the library has read the vocabulary, and have no place of their own.
    assert (error.offset is None) == (name in ("id past the limit", "unknown token that is none"))
    if field != "JSON" and error.offset is not None:
        top = field.removeprefix("model.").partition(".")[0].partition("[")[0]
        assert path.read_bytes()[error.offset :].startswith(b'"%s"' % top.encode())


def test_the_file_without_a_change_loads(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed({}))
    assert load(path).encode("ab") == [2]
    assert load(path).vocab_size == 4


LOADS: dict[str, State] = {
    "ids that repeat": {"model.vocab": {"a": 0, "b": 0, "ab": 0}},
    "ids with gaps": {"model.vocab": {"a": 0, "b": 1, "ab": 100_000}},
    "no vocabulary": {"model.vocab": {}, "model.merges": []},
    "an empty token": {"model.vocab": {"a": 0, "b": 1, "ab": 2, "": 3}},
    "noncharacters": {"model.vocab": {"a": 0, "b": 1, "ab": 2, "\uffff\U0010ffff\0": 3}},
    "merges as text": {"model.merges": ["a b"]},
    "an added token twice": {"added_tokens": [added(3), added(4)]},
    "an added id twice": {"added_tokens": [added(3), added(3, "<f>")]},
    "truncation to nothing": {"truncation": {"direction": "Right", "max_length": 0,
                                             "strategy": "LongestFirst", "stride": 0}},
    "truncation by a stride": {"truncation": {"direction": "Right", "max_length": 2,
                                              "strategy": "LongestFirst", "stride": 5}},
    "padding to a terabyte": {"padding": {"strategy": {"Fixed": 2**40}, "direction": "Right",
                                          "pad_to_multiple_of": None, "pad_id": 0,
                                          "pad_type_id": 0, "pad_token": "a"}},
    "padding to a multiple of 0": {"padding": {"strategy": "BatchLongest", "direction": "Right",
                                               "pad_to_multiple_of": 0, "pad_id": 0,
                                               "pad_type_id": 0, "pad_token": "a"}},
    "pattern that matches nothing": {"pre_tokenizer": sequence(
        "pretokenizers", split({"Regex": "a|"}), STATE["pre_tokenizer"])},
}  # fmt: skip


@pytest.mark.parametrize("name", LOADS)
def test_odd_file_loads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed(LOADS[name]))
    with bounded():
        tokenizer = load(path)
        assert len(tokenizer.encode("ab " * 100)) <= 300
        tokenizer.decode(range(tokenizer.vocab_size + 5))


LIBRARY: dict[str, State] = {
    "merge of unknown tokens": {"model.merges": [["a", "zz"]]},
    "merge to an unknown token": {"model.merges": [["b", "a"]]},
    "merge of one token": {"model.merges": ["ab"]},
    "unknown type": {"pre_tokenizer": {"type": "Nonsense"}},
    "no model": {"model": None},
    "bad pattern": {"pre_tokenizer": split({"Regex": r"\p{Nonsense}"})},
    "unknown members": {"more": {"deep": [[[{}]]]}, "model.more": [1, 2, {"a": None}]},
    "another model": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_the_library_refuses_is_told(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed(LIBRARY[name]))
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(path)
    assert caught.value.file == path
    assert str(caught.value).isprintable()


RAW: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda good: b"",
    "cut": lambda good: good[:-9],
    "two": lambda good: good + good,
    "not UTF-8": lambda good: good.replace(b'"1.0"', b'"\xff"'),
    "vocabulary not UTF-8": lambda good: good.replace(b'"ab": 2', b'"\xff": 2'),
    "byte-order mark": lambda good: b"\xef\xbb\xbf" + good,
    "UTF-16": lambda good: good.decode().encode("utf-16"),
    "NaN": lambda good: good.replace(b'"1.0"', b"NaN"),
    "duplicate member": lambda good: good.replace(b'"version"', b'"padding"'),
    "duplicate in the model": lambda good: good.replace(b'"fuse_unk"', b'"dropout"'),
    "lone surrogate": lambda good: good.replace(b'"<e>"', b'"\\ud800"'),
    "lone surrogate in the vocabulary": lambda good: good.replace(b'"ab": 2', b'"\\ud800": 2'),
    "nested normalizers": lambda good: good.replace(
        b'"normalizer": null',
        b'"normalizer": ' + b'{"type": "Sequence", "normalizers": [' * 10**6,
    ),
    "nested lists": lambda good: good.replace(b'"version": "1.0"', b'"x": ' + b"[" * 10**6),
    "nested in the model": lambda good: good.replace(b'"dropout": null', b'"x": ' + b"[" * 10**6),
    "10^5 digits": lambda good: good.replace(b'"1.0"', b"9" * 10**5),
    "millions of values": lambda good: good.replace(b'"1.0"', b"[%s0]" % (b"0," * 10**7)),
    "a vocabulary without end": lambda good: good.replace(
        b'"vocab": {', b'"vocab": {%s' % (b'"a": 0,' * 4_500_000)
    ),
    "merges without end": lambda good: good.replace(
        b'"merges": [', b'"merges": [%s' % (b'"a b",' * 4_500_000)
    ),
    "a token of megabytes": lambda good: good.replace(b'"<e>"', b'"%s"' % (b"e" * (5 << 20))),
}


@pytest.mark.parametrize("name", RAW)
def test_hostile_json_is_refused(name: str, tmp_path: Path) -> None:
    good = changed({})
    content = RAW[name](good)
    assert content != good
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    del content
    with bounded(), pytest.raises(ModelFormatError) as caught:
        load(path)
    assert caught.value.file == path
    assert str(caught.value).isprintable()
    in_vocabulary = "vocabulary" in name and "without end" not in name
    assert (caught.value.offset is None) == in_vocabulary, str(caught.value)


def test_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(changed({}))
    os.truncate(path, 2**40)
    with bounded(), pytest.raises(ModelFormatError, match="more than"):
        load(path)


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with bounded(), pytest.raises(FarthingError, match="not a regular file"):
        load(path)


def test_the_vocabulary_is_stepped_over_and_not_changed(tmp_path: Path) -> None:
    """Strings of all kinds of characters and escapes, in every spelling of JSON."""
    vocabulary = {"a": 0, '"': 1, "\\": 2, 'é"\\,}': 3, "\n": 4, "}]": 5, "水": 6, "\x7f": 7}
    merges = [["a", '"'], ["\\", "\n"], ["}]", "水"]]
    for indent in (None, 0, 2):
        for ascii_only in (True, False):
            state = {"model": {"vocab": vocabulary, "merges": merges, "type": "BPE"}}
            path = tmp_path / "tokenizer.json"
            path.write_text(json.dumps(state, indent=indent, ensure_ascii=ascii_only))
            assert json.loads(read_tokenizer_json(path)) == state
            for length in range(0, path.stat().st_size, 3):
                path.write_text(json.dumps(state, indent=indent, ensure_ascii=ascii_only))
                os.truncate(path, length)
                with pytest.raises(ModelFormatError):
                    read_tokenizer_json(path)


def test_a_pattern_that_gives_up_is_an_error_of_that_text(tmp_path: Path) -> None:
    """Three loops in a row are allowed; where the matcher stops, the request is told."""
    path = tmp_path / "tokenizer.json"
    pattern = split({"Regex": r"\w*\w*\w*(?!\w)!"})
    path.write_bytes(changed({"pre_tokenizer": sequence("pretokenizers", pattern)}))
    tokenizer = load(path)
    assert tokenizer.encode("ab") == [2]
    with pytest.raises(InvalidParameterError, match="cannot be encoded by this model's tokenizer"):
        tokenizer.encode("a" * 3000 + " !")
