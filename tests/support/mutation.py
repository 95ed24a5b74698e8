"""Damaged copies of a file: random, but the same for the same seed."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from typing import Any

NUMBERS = (0, 1, 2, 3, 7, 8, 13, 31, 32, 33, 127, 128, 255, 256, 2**15, 2**16, 2**20, 2**31 - 1,
           2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
TOKENS = (b"null", b"true", b"[]", b"{}", b"-1", b"0", b"1e308", b"1e999", b"NaN", b"2147483648",
          b"18446744073709551616", b'""', b'"\\ud800"', b'"x"', b"0.5", b"1e-320", b"[[[[[]]]]]",
          b"," * 3, b":", b"}", b"]", b"\xff", b"\0")  # fmt: skip
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{},:]')


def mutate(content: bytes, rng: random.Random, *, is_json: bool) -> bytes:
    """A copy of ``content`` with one to three kinds of damage."""
    kinds = [_flip, _cut, _splice, _double, _number, _number, _zeros, _insert]
    if is_json:
        kinds += [_json_token] * 4 + [_json_tree] * 16
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(kinds)(content, rng)
    return content


def _range(content: bytes, rng: random.Random, longest: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.randint(1, longest))


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _splice(content: bytes, rng: random.Random) -> bytes:
    start, end = _range(content, rng)
    place = rng.randrange(len(content) + 1)
    return content[:place] + content[start:end] + content[place + rng.choice((0, end - start)) :]


def _double(content: bytes, rng: random.Random) -> bytes:
    start, end = _range(content, rng, 512)
    return content[:end] + content[start:end] + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.randbytes(rng.choice((1, 2, 8))) + content[place:]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    start, end = _range(content, rng)
    return content[:start] + rng.choice((b"\0", b"\xff")) * (end - start) + content[end:]


def _number(content: bytes, rng: random.Random) -> bytes:
    """A little-endian integer, where one may stand, becomes another."""
    form = rng.choice(("<B", "<H", "<I", "<Q"))
    size = struct.calcsize(form)
    if len(content) < size:
        return content
    # Lengths and counts start where a small number is: look for one nearby.
    place = rng.randrange(len(content) - size + 1)
    for near in range(place, min(place + 64, len(content) - size + 1)):
        if 0 < struct.unpack_from(form, content, near)[0] < 4096:
            place = near
            break
    old: int = struct.unpack_from(form, content, place)[0]
    new = rng.choice((*NUMBERS, old + 1, old - 1, 2 * old, old + 32)) % 256**size
    return content[:place] + struct.pack(form, new) + content[place + size :]


def _json_token(content: bytes, rng: random.Random) -> bytes:
    """A token of the text becomes another, or goes."""
    tokens = list(_VALUE.finditer(content[:65536]))
    if not tokens:
        return content
    token = rng.choice(tokens)
    other = rng.choice((*TOKENS, b"", rng.choice(tokens)[0], str(rng.choice(NUMBERS)).encode()))
    return content[: token.start()] + other + content[token.end() :]


def _json_tree(content: bytes, rng: random.Random) -> bytes:
    """A value somewhere in the tree becomes another of any kind; the text stays JSON.

    In a safetensors file the tree is the header, whose length is corrected.
    """
    start, end = 0, len(content)
    if not content.startswith(b"{") and len(content) > 8:
        start, end = 8, 8 + min(struct.unpack_from("<Q", content)[0], len(content))
    try:
        tree = json.loads(content[start:end])
    except (ValueError, RecursionError):
        return content
    if not tree or not isinstance(tree, dict | list):
        return content
    holder, key = _place(tree, rng)
    others: list[Callable[[], Any]] = [
        lambda: rng.choice(NUMBERS), lambda: -rng.choice(NUMBERS), lambda: rng.random(),
        lambda: None, lambda: True, lambda: "", lambda: "x" * 5000, list, dict,
        lambda: [holder[key]], lambda: {"a": holder[key]},
        lambda: (lambda other: other[0][other[1]])(_place(tree, rng)),
        lambda: rng.choice(("(a+)+$", "\x1b[2J", "../x", "\uffff", "BPE", "Sequence", "llama")),
    ]  # fmt: skip
    holder[key] = rng.choice(others)()
    try:
        raw = json.dumps(tree).encode()
    except (ValueError, RecursionError):  # it holds itself now
        return content
    head = struct.pack("<Q", len(raw)) if start else b""
    return head + raw + content[end:]


def _place(tree: Any, rng: random.Random) -> tuple[Any, Any]:
    """A holder and a key in it; large parts are not likelier than small ones."""
    while True:
        key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        inner = tree[key]
        if not inner or not isinstance(inner, dict | list) or rng.random() < 0.2:
            return tree, key
        tree = inner
