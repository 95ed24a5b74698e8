from __future__ import annotations

from tokenizers import pre_tokenizers

from farthing.tokenization.byte_level import (
    BYTE_TO_CHARACTER,
    byte_level_bytes,
    byte_level_string,
)


def test_the_alphabet_is_the_library_s() -> None:
    assert sorted(BYTE_TO_CHARACTER) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_each_byte_maps_as_in_the_library() -> None:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for code_point in (*range(0x800), 0x20AC, 0x1F642, 0x10FFFF):
        if text := chr(code_point):
            (piece, _), *rest = byte_level.pre_tokenize_str(text)
            assert not rest
            assert byte_level_string(text.encode()) == piece
            assert byte_level_bytes(piece) == text.encode()


def test_every_byte_survives_the_round_trip() -> None:
    data = bytes(range(256))
    assert byte_level_bytes(byte_level_string(data)) == data


def test_a_string_outside_the_alphabet_stands_for_itself() -> None:
    assert byte_level_bytes("<｜User｜>") == "<｜User｜>".encode()
    assert byte_level_bytes("a b") == b"a b"
