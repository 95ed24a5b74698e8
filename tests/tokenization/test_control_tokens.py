from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from farthing.tokenization import Tokenizer
from farthing.tokenization.control import looks_like_control


@pytest.fixture(params=["gguf", "json"])
def tokenizer(request: pytest.FixtureRequest, qwen2: Any) -> Tokenizer:
    if request.param == "gguf":
        return Tokenizer.from_gguf(qwen2.gguf)
    return Tokenizer.from_file(qwen2.path, qwen2.config)


def spellings(tokenizer: Tokenizer) -> st.SearchStrategy[str]:
    """Text made of control tokens, parts of them and other text."""
    parts = {s[:n] for s in tokenizer.control_tokens for n in range(1, len(s) + 1)}
    parts |= {s[n:] for s in tokenizer.control_tokens for n in range(len(s))}
    return st.lists(st.one_of(st.sampled_from(sorted(parts)), st.text(max_size=3))).map("".join)


@given(data=st.data())
def test_text_never_becomes_a_control_token(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(spellings(tokenizer))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.control_ids.isdisjoint(ids)


def test_every_spelling_is_its_token_where_allowed_and_text_elsewhere(
    tokenizer: Tokenizer,
) -> None:
    assert len(tokenizer.control_tokens) == 3
    for spelling in tokenizer.control_tokens:
        token_id = tokenizer.token_to_id(spelling)
        assert tokenizer.encode(spelling, allow_control=True) == [token_id]
        as_text = tokenizer.encode(f"a{spelling}b")
        assert token_id not in as_text
        assert tokenizer.decode(as_text) == f"a{spelling}b"


@given(data=st.data())
def test_parts_have_control_tokens_only_where_all_of_one_is_allowed(
    tokenizer: Tokenizer, data: st.DataObject
) -> None:
    texts = data.draw(st.lists(spellings(tokenizer), max_size=6))
    parts = [(text, data.draw(st.booleans())) for text in texts]
    whole = "".join(texts)
    allowed = [flag for text, flag in parts for _ in text]
    found = [i for i in tokenizer.encode_parts(parts) if i in tokenizer.control_ids]
    expected = []
    position = 0
    while position < len(whole):
        for spelling in tokenizer.control_tokens:
            stop = position + len(spelling)
            if whole.startswith(spelling, position) and all(allowed[position:stop]):
                expected.append(tokenizer.token_to_id(spelling))
                position = stop - 1
        position += 1
    assert found == expected


@given(data=st.data())
def test_seams_between_parts_leave_no_trace(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = data.draw(st.text())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    parts = [(piece, data.draw(st.booleans())) for piece in pieces]
    assert tokenizer.encode_parts(parts) == tokenizer.encode(text, add_special_tokens=False)


def test_a_turn_marker_listed_as_an_ordinary_added_token_is_a_control_token(
    qwen2: Any, tmp_path: Path
) -> None:
    library = Library.from_file(str(qwen2.path))
    library.add_tokens([AddedToken("<｜User｜>", normalized=False, special=False)])
    library.add_tokens([AddedToken("[TURN]", normalized=False, special=False)])
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    user = library.token_to_id("<｜User｜>")
    turn = library.token_to_id("[TURN]")

    tokenizer = Tokenizer.from_file(path, {"additional_special_tokens": ["[TURN]"]})
    assert {user, turn} <= tokenizer.control_ids
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode("<｜User｜>[TURN]"))
    assert tokenizer.encode("<｜User｜>[TURN]", allow_control=True) == [user, turn]
    assert tokenizer.token_to_id("<tool_call>") not in tokenizer.control_ids

    undeclared = Tokenizer.from_file(path, {})
    assert turn not in undeclared.control_ids
    assert undeclared.encode("[TURN]") == [turn]


def test_a_marker_with_a_wrong_type_in_a_gguf_is_a_control_token(qwen2: Any) -> None:
    types = [4 if kind == 3 else kind for kind in qwen2.gguf.token_types]
    tokenizer = Tokenizer.from_gguf(replace(qwen2.gguf, token_types=types))
    right = Tokenizer.from_gguf(qwen2.gguf)
    assert tokenizer.control_ids == right.control_ids
    without = Tokenizer.from_gguf(replace(qwen2.gguf, token_types=[]))
    assert without.control_ids == right.control_ids


def test_merges_that_spell_a_control_token_are_cut(qwen2: Any, tmp_path: Path) -> None:
    state = json.loads(qwen2.path.read_text())
    size = len(state["model"]["vocab"])
    state["model"]["vocab"]["<s>"] = size
    state["model"]["vocab"]["s>"] = size + 1
    state["model"]["merges"][:0] = [["s", ">"], ["<", "s>"]]
    state["pre_tokenizer"]["pretokenizers"].pop(0)
    for token in state["added_tokens"]:
        token["id"] += 2
    state["added_tokens"].insert(
        0, {**state["added_tokens"][0], "id": size, "content": "<s>", "special": True}
    )
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    tokenizer = Tokenizer.from_file(path, {})
    assert size in tokenizer.control_ids
    assert size in Library.from_file(str(path)).encode("x<s>y").ids
    for text in ("<s>", "x<s>y<s>", "<s><s><s>"):
        ids = tokenizer.encode(text)
        assert tokenizer.control_ids.isdisjoint(ids)
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("token", "control"),
    [
        ("<|im_end|>", True),
        ("<｜end▁of▁sentence｜>", True),
        ("<|>", False),
        ("<||>", False),
        ("<|-|>", False),
        ("<tool_call>", False),
        ("<|a b|>", False),
        ("x<|a|>", False),
    ],
)
def test_control_tokens_are_recognized_by_their_spelling(token: str, control: bool) -> None:
    assert looks_like_control(token) is control


@pytest.mark.parametrize(
    ("token", "control"),
    [
        ("<|turn>", True),
        ("<turn|>", True),
        ('<|"|>', True),
        ("<｜User｜>", True),
        ("<tool_call>", False),
        ("<|>", False),
        ("<a b|>", False),
        ("|x>", False),
    ],
)
def test_of_tokens_that_no_merging_forms_one_bar_is_enough(token: str, control: bool) -> None:
    assert looks_like_control(token, added=True) is control


@pytest.mark.parametrize("rstrip", [False, True])
@pytest.mark.parametrize("lstrip", [False, True])
def test_white_space_goes_with_a_token_that_takes_it_as_in_the_library(
    qwen2: Any, tmp_path: Path, lstrip: bool, rstrip: bool
) -> None:
    state = json.loads(qwen2.path.read_text())
    for token in state["added_tokens"]:
        if token["special"]:
            token.update(lstrip=lstrip, rstrip=rstrip)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(state))
    ours = Tokenizer.from_file(path, {})
    library = Library.from_file(str(path))
    for text in (
        *("a <|im_end|> b", " <|im_end|>\n\n<|im_start|> ", "a<|im_end|>b", "<|im_end|>"),
        *("a\x1c<|im_end|>\x1cb", "a\x85<|im_end|>\x85b", "\u3000<|im_end|>\u3000\u200b"),
    ):
        assert ours.encode(text, allow_control=True) == library.encode(text).ids
